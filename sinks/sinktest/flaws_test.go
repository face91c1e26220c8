package sinktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// broken is a good sink with one method replaced.
type broken struct {
	*memorySink
	publish func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result)
	check   func(s *memorySink, ctx context.Context, address string) error
}

func (b broken) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	if b.publish == nil {
		b.memorySink.Publish(ctx, batch, results)
		return
	}
	b.publish(b.memorySink, ctx, batch, results)
}

func (b broken) Check(ctx context.Context, address string) error {
	if b.check == nil {
		return b.memorySink.Check(ctx, address)
	}
	return b.check(b.memorySink, ctx, address)
}

// after breaks what Publish does once the good sink is ready.
func after(spoil func(batch []sinks.Message, results []sinks.Result)) broken {
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, batch, results)
		spoil(batch, results)
	}}
}

// before breaks the messages on their way to the broker.
func before(spoil func(batch []sinks.Message) []sinks.Message) broken {
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, spoil(slices.Clone(batch)), results)
	}}
}

// each breaks every message on its way.
func each(spoil func(m *sinks.Message)) broken {
	return before(func(batch []sinks.Message) []sinks.Message {
		for i := range batch {
			spoil(&batch[i])
		}
		return batch
	})
}

// flaws are sinks broken on purpose, each with the case that must catch it.
var flaws = map[string]struct {
	caughtBy string
	sink     broken
}{
	"acks before the broker did": {"silent", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		batch = slices.Clone(batch)
		go s.Publish(ctx, batch, make([]sinks.Result, len(batch)))
		for i := range results {
			results[i] = sinks.Result{Outcome: sinks.Accepted}
		}
	}}},
	"drops an entry": {"thousand", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		n := min(len(batch), 999)
		s.Publish(ctx, batch[:n], results[:n])
		for i := n; i < len(batch); i++ {
			results[i] = sinks.Result{Outcome: sinks.Accepted}
		}
	}}},
	"forgets a result": {"thousand", after(func(_ []sinks.Message, results []sinks.Result) {
		if len(results) > 700 {
			results[700] = sinks.Result{}
		}
	})},
	"swaps results": {"index", after(func(_ []sinks.Message, results []sinks.Result) {
		slices.SortStableFunc(results, func(a, b sinks.Result) int { return int(b.Outcome) - int(a.Outcome) })
	})},
	"ignores the context": {"silent", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		s.Publish(ctx, batch, results)
	}}},
	"sends when the time is over": {"cancelled", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		if errors.Is(ctx.Err(), context.Canceled) {
			ctx = context.WithoutCancel(ctx)
		}
		s.Publish(ctx, batch, results)
	}}},
	"tries again by itself": {"recovery", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		deadline, _ := ctx.Deadline()
		try, cancel := context.WithTimeout(ctx, time.Until(deadline)/3)
		defer cancel()
		s.Publish(try, batch, results)
		for i, r := range results {
			if r.Outcome == sinks.Unknown {
				s.Publish(ctx, batch[i:i+1], results[i:i+1])
			}
		}
	}}},
	"leaks a goroutine": {"form", after(func([]sinks.Message, []sinks.Result) {
		go func() { select {} }()
	})},
	"piles up goroutines until it is closed": {"silent", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		go func() { <-s.ended.Done() }()
		s.Publish(ctx, batch, results)
	}}},
	"reorders": {"order", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		for i := len(batch) - 1; i >= 0; i-- {
			s.Publish(ctx, batch[i:i+1], results[i:i+1])
		}
	}}},
	"reorders a run": {"run", before(func(batch []sinks.Message) []sinks.Message {
		if slices.ContainsFunc(batch, func(m sinks.Message) bool { return m.Ordered }) {
			slices.Reverse(batch)
		}
		return batch
	})},
	"goes on behind a refused one": {"run-refused", each(func(m *sinks.Message) { m.Ordered = false })},
	"refuses the rest of a run as well": {"run-refused", after(func(batch []sinks.Message, results []sinks.Result) {
		for i, r := range results {
			if batch[i].Ordered && r.Outcome == sinks.Unavailable {
				results[i].Outcome = sinks.Rejected
			}
		}
	})},
	"stops all keys for one": {"run-refused", each(func(m *sinks.Message) {
		if m.Ordered {
			m.Key = new(string)
		}
	})},
	"lets a late attempt land":              {"run-recovery", late()},
	"blames neighbours for a large message": {"too-large", after(blame(sinks.Rejected))},
	"blames neighbours for a missing place": {"addresses", after(blame(sinks.Unavailable))},
	"blames neighbours for a refused one":   {"refused", after(blame(sinks.Rejected))},
	"changes the batch": {"form", after(func(batch []sinks.Message, _ []sinks.Result) {
		for i := range batch {
			batch[i].Attempt++
		}
	})},
	"changes a payload": {"form", after(func(batch []sinks.Message, _ []sinks.Result) {
		for i := range batch {
			if len(batch[i].Payload) > 0 {
				batch[i].Payload[0] ^= 1
			}
		}
	})},
	"writes results after it returned": {"silent", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, batch, results)
		time.AfterFunc(10*time.Millisecond, func() {
			for i := range results {
				results[i].Scope = sinks.ScopeAddress
			}
		})
	}}},
	"accepts for a missing place": {"addresses", after(func(_ []sinks.Message, results []sinks.Result) {
		for i, r := range results {
			if r.Scope == sinks.ScopeAddress {
				results[i] = sinks.Result{Outcome: sinks.Accepted}
			}
		}
	})},
	"pauses everything for a missing place": {"addresses", after(func(_ []sinks.Message, results []sinks.Result) {
		for i := range results {
			if results[i].Scope == sinks.ScopeAddress {
				results[i].Scope = sinks.ScopeSink
			}
		}
	})},
	"loses header types": {"headers", each(func(m *sinks.Message) {
		m.Headers = slices.Clone(m.Headers)
		for i := range m.Headers {
			m.Headers[i].Value = m.Headers[i].Text
		}
	})},
	"makes no key an empty one": {"keys", each(func(m *sinks.Message) {
		if m.Key == nil {
			m.Key = new(string)
		}
	})},
	"writes JSON again": {"json-text", each(func(m *sinks.Message) {
		if !m.Opaque && string(m.Payload) == `{"a": 2.50, "b": 1, "e": 100, "z": -0}` {
			m.Payload = []byte(`{"a":2.5,"b":1,"e":100,"z":0}`)
		}
	})},
	"takes a body for text": {"opaque-bytes", each(func(m *sinks.Message) {
		if m.Opaque {
			m.Payload = []byte(string([]rune(string(m.Payload))))
		}
	})},
	"tells a payload": {"too-large", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, batch, results)
		for i, r := range results {
			if r.Outcome == sinks.Rejected {
				results[i].Err = fmt.Errorf("%w: %.200s", r.Err, batch[i].Payload)
			}
		}
	}}},
	"kills jobs while the broker is away": {"away", after(func(_ []sinks.Message, results []sinks.Result) {
		for i, r := range results {
			if r.Scope == sinks.ScopeSink {
				results[i].Outcome = sinks.Rejected
			}
		}
	})},
	"says that nothing was sent": {"recovery", after(func(_ []sinks.Message, results []sinks.Result) {
		for i, r := range results {
			if r.Outcome == sinks.Unknown {
				results[i].Outcome = sinks.Unavailable
			}
		}
	})},
	"uses a turn that comes too late": {"slow", oneAtATime()},
	"never recovers":                  {"recovery", forLife()},
	"checks with a real message": {"check", broken{check: func(s *memorySink, ctx context.Context, address string) error {
		s.broker.take(sinks.Message{ID: "check", Address: address})
		return s.Check(ctx, address)
	}}},
	"checks nothing": {"check-missing", broken{check: func(*memorySink, context.Context, string) error { return nil }}},
	"lets Publish wait after Close": {"close-silent", broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		open := &memorySink{broker: s.broker, line: s.line, ended: context.Background()}
		open.Publish(ctx, batch, results)
	}}},
	"mixes up callers": {"concurrent", mixUp()},
}

// blame spreads an outcome over the whole batch.
func blame(outcome sinks.Outcome) func([]sinks.Message, []sinks.Result) {
	return func(_ []sinks.Message, results []sinks.Result) {
		if i := slices.IndexFunc(results, func(r sinks.Result) bool { return r.Outcome == outcome }); i >= 0 {
			for j := range results {
				results[j] = results[i]
			}
		}
	}
}

// late sends what had no answer once more, behind what is accepted next.
func late() broken {
	var mu sync.Mutex
	var lost []sinks.Message
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, batch, results)
		mu.Lock()
		defer mu.Unlock()
		for i, r := range results {
			switch {
			case r.Outcome == sinks.Unknown:
				lost = append(lost, batch[i])
			case r.Outcome == sinks.Accepted && i == len(results)-1:
				for _, m := range lost {
					s.broker.take(m)
				}
				lost = nil
			}
		}
	}}
}

// oneAtATime has one turn for all calls, and uses it whenever it comes.
func oneAtATime() broken {
	turn := make(chan struct{}, 1)
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
		}
		s.Publish(ctx, batch, results)
	}}
}

// forLife gives every sink up for good once one call had no answer.
func forLife() broken {
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		s.Publish(ctx, batch, results)
		for _, r := range results {
			if r.Outcome == sinks.Unknown {
				s.end()
			}
		}
	}}
}

// mixUp sends for the last caller whatever the one before it had.
func mixUp() broken {
	var inFlight atomic.Int64
	return broken{publish: func(s *memorySink, ctx context.Context, batch []sinks.Message, results []sinks.Result) {
		others := inFlight.Add(1) > 1
		defer inFlight.Add(-1)
		time.Sleep(time.Millisecond)
		s.Publish(ctx, batch, results)
		if others && len(results) > 0 {
			results[0], results[len(results)-1] = results[len(results)-1], results[0]
			results[0].Outcome = sinks.Unknown
		}
	}}
}
