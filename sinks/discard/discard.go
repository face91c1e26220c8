// Package discard is a sink that accepts everything and forgets it: for measuring the relay without a broker, and for
// draining a kind on purpose.
package discard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jobrelay/relay/sinks"
)

// Type is the entry for the list of sinks.
func Type() sinks.Type {
	return sinks.Type{Name: "discard", Settings: func() sinks.Settings { return &Settings{} }}
}

// Settings: there are none.
type Settings struct{}

// Validate has nothing to check.
func (*Settings) Validate() []error { return nil }

// CheckAddress wants an empty address: there is only one nowhere.
func (*Settings) CheckAddress(address string) error {
	if address != "" {
		return fmt.Errorf("discard takes no address, got %q", address)
	}
	return nil
}

// Open makes the sink.
func (s *Settings) Open(string, *slog.Logger) (sinks.Sink, error) { return &sink{settings: s}, nil }

type sink struct {
	settings *Settings
	closed   atomic.Bool
}

var errClosed = errors.New("discard: the sink is closed")

func (s *sink) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	var runs sinks.Runs
	for i := range batch {
		m := &batch[i]
		if r, waits := runs.Waits(m); waits {
			results[i] = r
			continue
		}
		if results[i] = s.one(ctx, m); results[i].Outcome != sinks.Accepted {
			runs.Stop(m, results[i].Outcome)
		}
	}
}

// KeepsOrder promises it: whatever is forgotten is forgotten in order.
func (s *sink) KeepsOrder() {}

func (s *sink) one(ctx context.Context, m *sinks.Message) sinks.Result {
	if err := s.settings.CheckAddress(m.Address); err != nil {
		return sinks.Result{Outcome: sinks.Rejected, Err: err}
	}
	if s.closed.Load() {
		return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: errClosed}
	}
	if ctx.Err() != nil {
		return sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("discard: time over before its turn: %w", context.Cause(ctx))}
	}
	return sinks.Result{Outcome: sinks.Accepted}
}

func (s *sink) Check(ctx context.Context, address string) error {
	if err := s.settings.CheckAddress(address); err != nil {
		return err
	}
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

func (s *sink) Close(context.Context) error {
	s.closed.Store(true)
	return nil
}
