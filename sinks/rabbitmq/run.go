package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/sinks"
)

// run is one batch on one generation.
type run struct {
	*batch
	ctx   context.Context
	start time.Time
	proof *proof
	g     *generation

	flight    []sent             // sent and not answered, in order
	returned  map[identity]reply // what the broker gave back
	missing   map[string]error   // exchanges that turned out not to exist
	forbidden map[address]error  // addresses that turned out to be closed to the user
}

// sent is a message that was handed to the library.
type sent struct {
	index   int
	start   int64                      // where it begins in the bytes of the connection
	confirm *amqp.DeferredConfirmation // nil: the library failed half way
}

// publish gives every message its result. A channel that the broker closed over one of them is opened again, and the
// rest goes on.
func (r *run) publish() {
	for {
		before := len(r.open)
		r.pass()
		if len(r.open) == 0 {
			return
		}
		unsent := sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink}
		switch {
		case r.g.blocked() != nil:
			unsent.Err = fmt.Errorf("not sent: %w", r.g.blocked())
		case r.ctx.Err() != nil:
			unsent.Scope, unsent.Err = sinks.ScopeMessage, fmt.Errorf("not sent: %w", context.Cause(r.ctx))
		case r.g.alive(): // an alarm that has ended
			continue
		case !r.g.stands() || len(r.open) == before: // the second: closed, and no message explains it
			unsent.Err = fmt.Errorf("not sent: %s", r.g.ending())
		default:
			err := r.g.reopen()
			if err == nil || r.ctx.Err() != nil {
				continue
			}
			unsent.Err = fmt.Errorf("not sent: open a channel: %s", words(err))
		}
		r.rest(unsent)
		return
	}
}

// pass sends in order, never more in flight than the window, until all is sent or nothing more can be on this channel.
// Then nothing is in flight.
func (r *run) pass() {
	r.g.conn.cork(true)
	defer r.g.conn.cork(false)
	for len(r.open) > 0 && r.ctx.Err() == nil && r.g.blocked() == nil {
		i := r.open[0]
		if scope, err := r.closedTo(r.addresses[i]); err != nil {
			r.open = r.open[1:]
			r.results[i] = sinks.Result{Outcome: sinks.Unavailable, Scope: scope, Err: err}
			continue
		}
		alone, window := r.proof.lacks(r.addresses[i], len(r.messages[i].Payload)), r.g.dialer.window
		switch {
		case alone:
			r.settle(0)
		case len(r.flight) >= window: // by halves, so that neither side waits for each single message of the other
			r.settle(window / 2)
		}
		if !r.send(i) {
			break
		}
		if alone {
			r.settle(0)
		}
	}
	r.settle(0)
}

// closedTo is what an earlier message of the batch was told of the same place.
func (r *run) closedTo(a address) (sinks.Scope, error) {
	if err := r.missing[a.exchange]; err != nil {
		return sinks.ScopeParent, err
	}
	return sinks.ScopeAddress, r.forbidden[a]
}

// send hands a message to the library. It is false when nothing more can be sent on this channel.
func (r *run) send(i int) bool {
	a := r.addresses[i]
	s := sent{index: i, start: r.g.conn.taken()}
	var err error
	s.confirm, err = r.g.channel.PublishWithDeferredConfirm(a.exchange, a.key, true, false, publishing(&r.messages[i]))
	switch {
	case err == nil:
		r.open, r.flight = r.open[1:], append(r.flight, s)
		return true
	case errors.Is(err, amqp.ErrClosed) && r.g.stands(): // the channel was closed before; what was written is the library's own
		return false
	case r.g.conn.taken() > s.start: // some of it may have left; a stream that ends within a message is of no more use
		r.g.abort(err)
		r.open, r.flight = r.open[1:], append(r.flight, s)
		return false
	case r.g.alive(): // the library won't send this one, whatever it has against it
		r.open = r.open[1:]
		r.results[i] = sinks.Result{Outcome: sinks.Failed, Err: err}
		return true
	default:
		return false
	}
}

// settle waits until at most leave messages are in flight, and gives those that it waited for their results.
func (r *run) settle(leave int) {
	n := len(r.flight) - leave
	if n <= 0 {
		return
	}
	r.g.conn.cork(false)
	wait(r.flight[:n])
	r.g.conn.cork(true)
	closed := r.g.channel.IsClosed()
	if closed { // what has no answer now will never get one
		wait(r.flight)
		n = len(r.flight)
	}
	r.collect()
	var doubtful []sent
	for _, s := range r.flight[:n] {
		if !r.answer(s, closed) {
			doubtful = append(doubtful, s)
		}
	}
	r.flight = r.flight[n:]
	if len(doubtful) > 0 {
		r.doubt(doubtful)
	}
}

// wait returns when all have a confirm or can't get one any more: the end of the context ends the connection, the end
// of the connection ends the channel, and the end of the channel resolves every confirm.
func wait(flight []sent) {
	for _, s := range flight {
		if s.confirm != nil {
			<-s.confirm.Done()
		}
	}
}

// collect takes the returns that have come. The broker sends a return before the confirm of the same message, and the
// library passes them on in that order, so for everything that is confirmed the returns are complete.
func (r *run) collect() {
	for {
		select {
		case back, ok := <-r.g.returns:
			if !ok {
				return
			}
			if r.returned == nil {
				r.returned = map[identity]reply{}
			}
			r.returned[identityOfReturn(back)] = reply{back.ReplyCode, back.ReplyText}
		default:
			return
		}
	}
}
