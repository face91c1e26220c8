package discard_test

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/discard"
	"github.com/jobrelay/relay/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) sinks.Sink {
	t.Helper()
	s, err := discard.Type().Settings().Open("discard", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The suite reads back what a broker has received, which is what this sink doesn't do; so it has tests of its own.

func TestAccepts(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.Check(t.Context(), ""); err != nil {
		t.Errorf("Check: %v", err)
	}
	results := make([]sinks.Result, 3)
	s.Publish(t.Context(), []sinks.Message{{}, {Address: "somewhere"}, {}}, results)
	for i, want := range []sinks.Outcome{sinks.Accepted, sinks.Rejected, sinks.Accepted} {
		if r := results[i]; r.Outcome != want || (r.Err == nil) != (want == sinks.Accepted) {
			t.Errorf("result %d: got %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
}

// TestKeepsOrder: nothing of a key is accepted behind a message that isn't.
func TestKeepsOrder(t *testing.T) {
	t.Parallel()
	s, ok := open(t).(sinks.Sequencer)
	if !ok {
		t.Fatal("discard is no Sequencer")
	}
	a, b := "a", "b"
	batch := []sinks.Message{
		{Key: &a, Ordered: true}, {Key: &a, Ordered: true, Address: "somewhere"}, {Key: &b, Ordered: true},
		{Key: &a, Ordered: true}, {Key: &a}, {Key: &a, Kind: "other", Ordered: true}, {Ordered: true},
	}
	results := make([]sinks.Result, len(batch))
	s.Publish(t.Context(), batch, results)
	for i, want := range []sinks.Outcome{sinks.Accepted, sinks.Rejected, sinks.Accepted, sinks.Unavailable, sinks.Accepted, sinks.Accepted, sinks.Accepted} {
		if r := results[i]; r.Outcome != want || r.Scope != sinks.ScopeMessage {
			t.Errorf("result %d: got %v of the %v (%v), want %v", i, r.Outcome, r.Scope, r.Err, want)
		}
	}
}

func TestAcceptsNothingWhenOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closed := open(t)
	for range 2 {
		if err := closed.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if closed.Check(t.Context(), "") == nil {
		t.Errorf("Check after Close: got nil, want an error")
	}
	for name, publish := range map[string]func([]sinks.Result){
		"cancelled": func(r []sinks.Result) { open(t).Publish(ctx, make([]sinks.Message, 1), r) },
		"closed":    func(r []sinks.Result) { closed.Publish(t.Context(), make([]sinks.Message, 1), r) },
	} {
		results := make([]sinks.Result, 1)
		publish(results)
		if r := results[0]; r.Outcome != sinks.Unavailable || r.Err == nil {
			t.Errorf("%s: got %v (%v), want unavailable", name, r.Outcome, r.Err)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	s := discard.Type().Settings()
	if err := s.CheckAddress(""); err != nil {
		t.Errorf("empty: %v", err)
	}
	if s.CheckAddress("{kind}") == nil {
		t.Errorf("an address should be refused")
	}
}

func BenchmarkPublish(b *testing.B) {
	sinktest.Benchmark(b, func(b *testing.B) (sinks.Sink, string) { return open(b), "" })
}
