package sinktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// broker is a broker in memory: what the suite's own tests have instead of a real one.
type broker struct {
	mu     sync.Mutex
	places map[string][]sinktest.Received
}

const largest = 100_000

func (b *broker) create(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.places[address] = nil
}

func (b *broker) read(address string) []sinktest.Received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.places[address])
}

// take is the broker's side of publishing one message.
func (b *broker) take(m sinks.Message) sinks.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.places[m.Address]; !ok {
		return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeAddress, Err: fmt.Errorf("no place %q", m.Address)}
	}
	r := sinktest.Received{
		ID: m.ID, Kind: m.Kind, Time: m.Time.Format(sinks.TimeFormat), Attempt: strconv.Itoa(m.Attempt), Key: m.Key,
		Headers: map[string]any{}, ContentType: m.ContentType, Payload: slices.Clone(m.Payload),
	}
	if m.Replay != 0 {
		r.Replay = strconv.FormatInt(m.Replay, 10)
	}
	for _, h := range m.Headers {
		r.Headers[h.Name] = h.Value
	}
	b.places[m.Address] = append(b.places[m.Address], r)
	return sinks.Result{Outcome: sinks.Accepted}
}

// memorySink publishes to a broker in memory over a line of its own.
type memorySink struct {
	broker *broker
	line   *line
	ended  context.Context // done once it is closed
	end    context.CancelFunc
}

func newMemorySink(b *broker) *memorySink {
	s := &memorySink{broker: b, line: &line{}}
	s.ended, s.end = context.WithCancel(context.Background())
	return s
}

var (
	errOver = errors.New("the time was over")
	errCut  = errors.New("no connection")
)

func (s *memorySink) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	var runs sinks.Runs
	for i, m := range batch {
		if r, waits := runs.Waits(&m); waits {
			results[i] = r
			continue
		}
		if results[i] = s.one(ctx, m); results[i].Outcome != sinks.Accepted {
			runs.Stop(&m, results[i].Outcome)
		}
	}
}

func (s *memorySink) KeepsOrder() {}

func (s *memorySink) one(ctx context.Context, m sinks.Message) sinks.Result {
	switch {
	case len(m.Payload) > largest:
		return sinks.Result{Outcome: sinks.Rejected, Err: fmt.Errorf("%d bytes are over the limit of %d", len(m.Payload), largest)}
	case m.Address == "!":
		return sinks.Result{Outcome: sinks.Rejected, Err: errors.New("an illegal address")}
	case ctx.Err() != nil || s.ended.Err() != nil:
		return sinks.Result{Outcome: sinks.Unavailable, Err: errOver}
	case s.line.is(cut):
		return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: errCut}
	}
	r := s.broker.take(m)
	select {
	case <-ctx.Done():
	case <-time.After(s.line.delayed()):
	}
	if s.line.is(swallowing) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return sinks.Result{Scope: sinks.ScopeSink, Err: errOver}
	}
	return r
}

func (s *memorySink) Check(ctx context.Context, address string) error {
	if s.line.is(swallowing) {
		select {
		case <-ctx.Done():
		case <-s.ended.Done():
		}
	}
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.broker.places[address]; (!ok && address != "") || !s.line.is(passing) {
		return fmt.Errorf("check %q: no answer", address)
	}
	return nil
}

func (s *memorySink) Close(context.Context) error {
	s.end()
	return nil
}

type state int

const (
	passing state = iota
	swallowing
	cut
)

// line is the way to the broker.
type line struct {
	mu    sync.Mutex
	state state
	delay time.Duration
}

func (l *line) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
}

func (l *line) is(s state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}

func (l *line) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func (l *line) delayed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

func (l *line) Swallow() { l.set(swallowing) }
func (l *line) Cut()     { l.set(cut) }
func (l *line) Heal()    { l.set(passing); l.Delay(0) }

// harness is that of the broker in memory; wrap breaks the sink, or doesn't.
func harness(wrap func(*memorySink) sinks.Sink) sinktest.Harness {
	b := &broker{places: map[string][]sinktest.Received{}}
	var places sync.Map
	address := func(t *testing.T) string {
		n, _ := places.LoadOrStore(t.Name(), new(int))
		*n.(*int)++
		a := fmt.Sprintf("%s-%d", t.Name(), *n.(*int))
		b.create(a)
		return a
	}
	return sinktest.Harness{
		Open:    func(*testing.T) sinks.Sink { return wrap(newMemorySink(b)) },
		Address: address,
		Read: func(_ *testing.T, address string, n int) []sinktest.Received {
			for end := time.Now().Add(time.Second); len(b.read(address)) < n && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond) // for what shouldn't come
			return b.read(address)
		},
		Missing: func(t *testing.T) string { return t.Name() + "-missing" },
		Outage: func(t *testing.T) (sinks.Sink, string, sinktest.Line) {
			s := newMemorySink(b)
			return wrap(s), address(t), s.line
		},
		TooLarge: largest,
		Refused:  map[string]func(*sinks.Message){"illegal address": func(m *sinks.Message) { m.Address = "!" }},
	}
}
