package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// grace is how long after its context's end a call of a sink is waited for; a sink promises to return within a second.
const grace = 5 * time.Second

// caller makes one kind of calls to one sink, and keeps its faults from taking the engine with them: a panic, or a call
// that doesn't return.
type caller struct {
	sink, what string
	most       int64 // calls that may hang before no more are made
	log        *slog.Logger
	hung       atomic.Int64
}

// What became of a call that didn't return by itself.
var (
	errTooManyHang = errors.New("earlier calls of the sink hang")
	errHangs       = fmt.Errorf("the sink did not return within %v of its deadline", grace)
	errPanicked    = errors.New("the sink panicked")
)

// call runs f and returns within grace of the context's end, whatever f does: nil when f returned. After errHangs f may
// still be running.
func (c *caller) call(ctx context.Context, f func()) error {
	if n := c.hung.Load(); n >= c.most {
		return fmt.Errorf("%w: %d of them", errTooManyHang, n)
	}
	returned := make(chan error, 1)
	go func() {
		err := errPanicked
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%w: %v", errPanicked, v)
				c.log.Error("a sink panicked", "sink", c.sink, "call", c.what, "error", fmt.Sprint(v))
			}
			returned <- err
		}()
		f()
		err = nil
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case err := <-returned:
		return err
	case <-patience.C:
		c.giveUp(returned)
		return errHangs
	}
}

// giveUp counts a call that hangs, for as long as it does.
func (c *caller) giveUp(returned <-chan error) {
	c.log.Error("a sink hangs", "sink", c.sink, "call", c.what, "calls", c.hung.Add(1))
	go func() {
		<-returned
		c.hung.Add(-1)
	}()
}

// publish calls the sink's Publish. A panic or a hanging call leaves messages Unknown, which can only cost a duplicate.
func (c *caller) publish(ctx context.Context, sink sinks.Sink, batch []sinks.Message, results []sinks.Result) {
	own := make([]sinks.Result, len(batch)) // a call that was given up may still write
	switch err := c.call(ctx, func() { sink.Publish(ctx, batch, own) }); {
	case errors.Is(err, errTooManyHang):
		fill(results, sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: fmt.Errorf("not sent: %w", err)})
	case errors.Is(err, errHangs):
		fill(results, sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: err})
	default:
		copy(results, own)
	}
}

// Check asks a sink for a destination as the engine does before it sends, once: an error says why it can't be used now. A
// sink that panics is an error, and so is one that doesn't return within 5 s of the context's end.
func Check(ctx context.Context, sink sinks.Sink, address string) error {
	c := caller{what: "check", most: 1, log: slog.New(slog.DiscardHandler)}
	return c.check(ctx, sink, address)
}

// check calls the sink's Check.
func (c *caller) check(ctx context.Context, sink sinks.Sink, address string) error {
	var says error
	if err := c.call(ctx, func() { says = sink.Check(ctx, address) }); err != nil {
		return err
	}
	return says
}

func fill(results []sinks.Result, r sinks.Result) {
	for i := range results {
		results[i] = r
	}
}
