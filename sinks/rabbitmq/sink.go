package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobrelay/relay/sinks"
)

var (
	errSinkClosed = errors.New("the sink is closed")
	errAbandoned  = errors.New("the connection was given up")
)

type sink struct {
	dialer     *dialer
	publishers *pool
	checkers   *pool
	proof      *proof
	ended      context.Context // done once Close is called
	end        context.CancelCauseFunc
}

func newSink(d *dialer, connections int) *sink {
	s := &sink{dialer: d, publishers: newPool(d, connections), checkers: newPool(d, 1), proof: newProof()}
	s.ended, s.end = context.WithCancelCause(context.Background())
	return s
}

// bind makes a context that ends with the sink too.
func (s *sink) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ended, func() { cancel(errSinkClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// Publish validates, takes a generation and publishes on it.
func (s *sink) Publish(ctx context.Context, messages []sinks.Message, results []sinks.Result) {
	start := time.Now()
	ctx, cancel := s.bind(ctx)
	defer cancel()
	b := s.validate(messages, results)
	if len(b.open) == 0 {
		return
	}
	if ctx.Err() != nil {
		b.rest(sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("not sent: %w", context.Cause(ctx))})
		return
	}
	g, scope, err := s.turn(ctx, start)
	if err != nil {
		b.rest(sinks.Result{Outcome: sinks.Unavailable, Scope: scope, Err: fmt.Errorf("not sent: %w", err)})
		return
	}
	stop := context.AfterFunc(ctx, func() { g.abort(context.Cause(ctx)) })
	sound := false // after a panic answers to this batch may still come
	defer func() { s.publishers.release(g, stop() && sound) }()
	r := &run{batch: b, ctx: ctx, start: start, proof: s.proof, g: g}
	r.publish()
	sound = true
}

// turn waits for a generation. One that comes too late to be of use is left for the next call, and says nothing about the
// broker; nor does a call that was called off.
func (s *sink) turn(ctx context.Context, start time.Time) (*generation, sinks.Scope, error) {
	slot, err := s.publishers.wait(ctx)
	if err != nil {
		return nil, sinks.ScopeMessage, err
	}
	if err := sinks.InTime(ctx, start); err != nil {
		s.publishers.put(slot)
		return nil, sinks.ScopeMessage, err
	}
	g, err := s.publishers.fill(ctx, slot)
	if err != nil {
		scope := sinks.ScopeSink
		if errors.Is(ctx.Err(), context.Canceled) {
			scope = sinks.ScopeMessage
		}
		return nil, scope, err
	}
	if err := sinks.InTime(ctx, start); err != nil { // connecting took long
		s.publishers.release(g, true)
		return nil, sinks.ScopeMessage, err
	}
	return g, 0, nil
}

// batch is one call of Publish: messages with their addresses, and those that still need a result.
type batch struct {
	messages  []sinks.Message
	addresses []address
	results   []sinks.Result
	open      []int // indexes without a result that haven't been sent, in order
}

// validate rejects what can never be accepted before anything is sent.
func (s *sink) validate(messages []sinks.Message, results []sinks.Result) *batch {
	b := &batch{messages: messages, results: results, addresses: make([]address, len(messages)), open: make([]int, 0, len(messages))}
	for i := range messages {
		a, err := s.checkMessage(&messages[i])
		if err != nil {
			results[i] = sinks.Result{Outcome: sinks.Rejected, Err: err}
			continue
		}
		b.addresses[i] = a
		b.open = append(b.open, i)
	}
	return b
}

func (s *sink) checkMessage(m *sinks.Message) (address, error) {
	a, err := parseAddress(m.Address)
	if err != nil {
		return a, fmt.Errorf("address %q %w", m.Address, err)
	}
	if err := a.check(); err != nil {
		return a, err
	}
	if most := s.proof.most(); most > 0 && len(m.Payload) > most {
		return a, tooLarge(len(m.Payload), most)
	}
	return a, checkMessage(m, int(s.dialer.frame.Load()))
}

// rest gives all that wasn't sent the same result.
func (b *batch) rest(r sinks.Result) {
	for _, i := range b.open {
		b.results[i] = r
	}
	b.open = nil
}

// Close ends calls under way and closes all connections.
func (s *sink) Close(ctx context.Context) error {
	s.end(errSinkClosed)
	return errors.Join(s.publishers.close(ctx), s.checkers.close(ctx))
}
