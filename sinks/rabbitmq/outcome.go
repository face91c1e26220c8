package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/sinks"
)

// identity tells messages in flight apart where the broker gives no tag: in a return. The id alone doesn't, a copy
// made by replay has the same, and a job may go to two addresses. Two messages that are alike in all of it count as
// returned together.
type identity struct {
	address
	id     string
	replay int64
}

func identityOfReturn(back amqp.Return) identity {
	replay, _ := back.Headers[sinks.HeaderReplay].(int64)
	return identity{address{back.Exchange, back.RoutingKey}, back.MessageId, replay}
}

// reply is the broker's reason for a return.
type reply struct {
	code uint16
	text string
}

// answer gives a message the result that the broker's word on it stands for. It is false when there was none.
func (r *run) answer(s sent, closed bool) bool {
	m, a := &r.messages[s.index], r.addresses[s.index]
	back, isBack := r.returned[identity{a, m.ID, m.Replay}]
	switch {
	case isBack && a.exchange == "": // every queue is bound to the default exchange, so there is no such queue
		r.results[s.index] = sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeAddress,
			Err: fmt.Errorf("%v doesn't exist: returned with %d %s", a, back.code, back.text)}
	case isBack:
		r.results[s.index] = sinks.Result{Outcome: sinks.Failed,
			Err: fmt.Errorf("%v leads to no queue: returned with %d %s", a, back.code, back.text)}
	case s.confirm != nil && s.confirm.Acked():
		r.results[s.index] = sinks.Result{Outcome: sinks.Accepted}
	case closed || s.confirm == nil:
		return false
	default:
		r.results[s.index] = sinks.Result{Outcome: sinks.Failed,
			Err: fmt.Errorf("%v: the broker refused it (basic.nack): a queue is full or can't write", a)}
	}
	r.proof.answered(a, len(m.Payload))
	return true
}

// doubt gives results to messages that were sent and got no word, once none can come any more.
func (r *run) doubt(in []sent) {
	switch {
	case r.ctx.Err() != nil:
		r.unanswered(in, r.silence(), fmt.Errorf("no confirm: %w", context.Cause(r.ctx)))
	case !r.g.stands():
		r.unanswered(in, sinks.ScopeSink, fmt.Errorf("no confirm: %s", r.g.ending()))
	default:
		r.refused(in, r.g.reason())
	}
}

// silence says what the silence at the end of the time concerns: the broker, when it answered nothing at all or reads
// nothing; the address, when others were answered meanwhile (see [sinks.Hearing]), on this connection or another; nothing,
// when somebody called it off.
func (r *run) silence() sinks.Scope {
	switch {
	case !errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return sinks.ScopeMessage
	case r.g.blocked() != nil:
		return sinks.ScopeSink
	default:
		return r.proof.hearing.Silence(r.start)
	}
}

// unanswered is for the end of a connection. What was never handed to the kernel, not even its first byte, the broker
// has definitely not taken. (Nor a message that was cut off in the middle; but that may be what ended the connection,
// so it counts.)
func (r *run) unanswered(in []sent, scope sinks.Scope, err error) {
	r.g.abort(err)
	end := r.g.conn.sent()
	for _, s := range in {
		outcome := sinks.Unknown
		if s.start >= end {
			outcome = sinks.Unavailable
		}
		r.results[s.index] = sinks.Result{Outcome: outcome, Scope: scope, Err: err}
	}
}

// refused is for a channel that the broker closed while the connection stands. If one message was without an answer
// the refusal is its own. Otherwise one of them is the cause, and of the rest some are taken, some not: the relay
// tries each alone.
func (r *run) refused(in []sent, err error) {
	limit := sizeLimit(err)
	if limit > 0 {
		r.proof.tooLarge(limit)
	}
	for _, s := range in {
		a, size := r.addresses[s.index], len(r.messages[s.index].Payload)
		r.proof.doubted(a.exchange)
		switch {
		case limit > 0 && size > limit:
			r.results[s.index] = sinks.Result{Outcome: sinks.Rejected, Err: tooLarge(size, limit)}
		case len(in) == 1:
			r.results[s.index] = r.refusal(a, err)
		default:
			r.results[s.index] = sinks.Result{Outcome: sinks.Unknown,
				Err: fmt.Errorf("the broker closed the channel over one of %d messages in flight: %s", len(in), words(err))}
		}
	}
}

// refusal is what the broker's reason for closing the channel means for the one message that it was about.
func (r *run) refusal(a address, err error) sinks.Result {
	text := fmt.Errorf("%v: %s", a, words(err))
	if code(err) == amqp.ContentTooLarge || sizeLimit(err) > 0 {
		return sinks.Result{Outcome: sinks.Rejected, Err: text}
	}
	r.proof.refused(a)
	switch code(err) {
	case amqp.NotFound:
		text = fmt.Errorf("exchange %q doesn't exist: %s", a.exchange, words(err))
		r.missing = with(r.missing, a.exchange, text)
		return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeParent, Err: text}
	case amqp.AccessRefused:
		r.forbidden = with(r.forbidden, a, text)
		return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeAddress, Err: text}
	case amqp.PreconditionFailed, amqp.ResourceLocked:
		return sinks.Result{Outcome: sinks.Failed, Err: text}
	default:
		return sinks.Result{Outcome: sinks.Unknown, Err: text}
	}
}

func with[K comparable](m map[K]error, key K, err error) map[K]error {
	if m == nil {
		m = map[K]error{}
	}
	m[key] = err
	return m
}

func tooLarge(size, limit int) error {
	return fmt.Errorf("the body has %d bytes, this RabbitMQ takes at most %d (max_message_size)", size, limit)
}

var sizes = regexp.MustCompile(`message size \d+ is larger than .*max size (\d+)`)

// sizeLimit is the limit that the broker named when it refused a message for its size, else 0.
func sizeLimit(err error) int {
	found := sizes.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	limit, _ := strconv.Atoi(found[1])
	return limit
}
