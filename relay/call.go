package relay

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// grace is how long after its context's end a call of Publish is waited for; a sink promises to return within a second.
const grace = 5 * time.Second

// caller keeps one sink's faults from taking the engine's workers with them: a panic, or a call that doesn't return.
// Both leave messages Unknown, which can only cost a duplicate.
type caller struct {
	name string
	most int64 // calls that may hang before no more are made
	log  *slog.Logger
	hung atomic.Int64
}

// publish calls the sink and returns within grace of the context's end, whatever the sink does.
func (c *caller) publish(ctx context.Context, sink sinks.Sink, batch []sinks.Message, results []sinks.Result) {
	if n := c.hung.Load(); n >= c.most {
		fill(results, sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: fmt.Errorf("not sent: %d calls of the sink hang", n)})
		return
	}
	own := make([]sinks.Result, len(batch)) // a call that was given up may still write
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer c.recovered()
		sink.Publish(ctx, batch, own)
	}()
	select {
	case <-returned:
		copy(results, own)
		return
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-returned:
		copy(results, own)
	case <-patience.C:
		c.giveUp(returned)
		fill(results, sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: fmt.Errorf("the sink did not return within %v of its deadline", grace)})
	}
}

// giveUp counts a call that hangs, for as long as it does.
func (c *caller) giveUp(returned <-chan struct{}) {
	c.log.Error("a sink hangs; its messages count as possibly sent", "sink", c.name, "calls", c.hung.Add(1))
	go func() {
		<-returned
		c.hung.Add(-1)
	}()
}

func (c *caller) recovered() {
	if v := recover(); v != nil {
		c.log.Error("a sink panicked; messages without a result count as possibly sent", "sink", c.name, "error", fmt.Sprint(v))
	}
}

func fill(results []sinks.Result, r sinks.Result) {
	for i := range results {
		results[i] = r
	}
}
