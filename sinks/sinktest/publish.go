package sinktest

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// publish sends a batch that should have all the time it needs.
func (s *suite) publish(sink sinks.Sink, batch []sinks.Message) []sinks.Result {
	s.Helper()
	return s.publishIn(sink, batch, patience)
}

// publishIn sends a batch under a deadline, and checks what holds for every call.
func (s *suite) publishIn(sink sinks.Sink, batch []sinks.Message, limit time.Duration) []sinks.Result {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.publishCtx(ctx, sink, batch, limit)
}

func (s *suite) publishCtx(ctx context.Context, sink sinks.Sink, batch []sinks.Message, limit time.Duration) []sinks.Result {
	s.Helper()
	before := clone(batch)
	results := make([]sinks.Result, len(batch))
	s.within(limit+late, "Publish", func() { sink.Publish(ctx, batch, results) })
	if !reflect.DeepEqual(before, batch) {
		s.Errorf("Publish has changed the batch")
	}
	s.checkResults(results)

	after := slices.Clone(results)
	s.Cleanup(func() {
		if !reflect.DeepEqual(after, results) || !reflect.DeepEqual(before, batch) {
			s.Errorf("results or batch changed after Publish had returned")
		}
	})
	return after
}

// checkResults checks what holds for any result.
func (s *suite) checkResults(results []sinks.Result) {
	s.Helper()
	for i, r := range results {
		switch {
		case r.Outcome == sinks.Accepted && r.Err != nil:
			s.Errorf("result %d is accepted with an error: %v", i, r.Err)
		case r.Outcome != sinks.Accepted && r.Err == nil:
			s.Errorf("result %d is %v without an error", i, r.Outcome)
		case r.Err != nil:
			s.checkSecret(r.Err)
		}
	}
}

func (s *suite) checkSecret(err error) {
	s.Helper()
	if strings.Contains(err.Error(), canary) {
		s.Errorf("an error repeats a payload or a header's value: %.300s", err)
	}
}

// want fails unless result i is as given.
func (s *suite) want(results []sinks.Result, i int, outcome sinks.Outcome, scope sinks.Scope) {
	s.Helper()
	r := results[i]
	if r.Outcome != outcome || (outcome != sinks.Accepted && r.Scope != scope) {
		s.Errorf("result %d: got %v of the %v (%v), want %v of the %v", i, r.Outcome, r.Scope, r.Err, outcome, scope)
	}
}

// wantAccepted fails unless all are.
func (s *suite) wantAccepted(results []sinks.Result) {
	s.Helper()
	for i, r := range results {
		if r.Outcome != sinks.Accepted {
			s.Fatalf("result %d of %d: got %v of the %v (%v), want accepted", i, len(results), r.Outcome, r.Scope, r.Err)
		}
	}
}

// wantNoWord fails unless all are what a broker without an answer leaves: never accepted, and nothing that kills a job.
func (s *suite) wantNoWord(results []sinks.Result) {
	s.Helper()
	for i, r := range results {
		if r.Outcome != sinks.Unknown && r.Outcome != sinks.Unavailable {
			s.Errorf("result %d: got %v (%v), want unknown or unavailable: no answer came", i, r.Outcome, r.Err)
		}
	}
}

// read returns what a place has received by id, and fails when a message came twice.
func (s *suite) read(address string, n int) map[string]Received {
	s.Helper()
	byID := map[string]Received{}
	for _, r := range s.h.Read(s.T, address, n) {
		if _, twice := byID[r.ID]; twice {
			s.Errorf("message %s arrived twice", r.ID)
		}
		byID[r.ID] = r
	}
	return byID
}

// wantExactly fails unless a place has received these messages, each once, and nothing else.
func (s *suite) wantExactly(address string, batch []sinks.Message) map[string]Received {
	s.Helper()
	got := s.read(address, len(batch))
	missing := 0
	for _, m := range batch {
		if _, ok := got[m.ID]; !ok {
			missing++
		}
	}
	if missing > 0 || len(got) != len(batch) {
		s.Errorf("%d messages arrived at %q, %d of %d that were accepted are missing", len(got), address, missing, len(batch))
	}
	return got
}
