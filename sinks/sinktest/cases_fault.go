package sinktest

import (
	"slices"
	"sync"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// silentBroker: no answer means not accepted, in time, and without goroutines that pile up call by call.
func silentBroker(s *suite) {
	sink, address := s.silent()
	s.wantNoWord(s.publishIn(sink, messages(address, 20), short))
	s.wantNoWord(s.publishIn(sink, messages(address, 20), short/4))

	before := count(goroutines(s.Name()))
	const calls = 10
	for range calls {
		s.wantNoWord(s.publishIn(sink, messages(address, 20), short/10))
	}
	after := 0
	if !eventually(settle, func() bool {
		after = count(goroutines(s.Name()))
		return after < before+calls
	}) {
		s.Errorf("%d goroutines before %d calls without an answer, %d after: they pile up", before, calls, after)
	}
}

// brokerAway: nothing can have been sent, and the whole sink is concerned.
func brokerAway(s *suite) {
	sink, address := s.away()
	for range 2 {
		results := s.publishIn(sink, messages(address, 20), 3*short)
		for i := range results {
			s.want(results, i, sinks.Unavailable, sinks.ScopeSink)
		}
	}
}

// recovery: when the answers come again a sink works again, with the same sink value, and nothing was sent twice.
func recovery(s *suite) {
	sink, address, line := s.outage()
	warm := messages(address, 5)
	s.wantAccepted(s.publish(sink, warm))

	line.Swallow()
	lost := messages(address, 20)
	results := s.publishIn(sink, lost, 2*short)
	s.wantNoWord(results)
	line.Heal()

	accepted := append(warm, s.publishUntilAccepted(sink, address)...)
	s.reconcile(address, accepted, lost, results)
}

// slowBroker: one that takes most of a call's time for an answer is well, and must not be cut off: a call that has its turn at
// once sends, and one whose turn comes too late doesn't.
func slowBroker(s *suite) {
	const (
		calls = 40 // more than a sink has turns at once
		limit = 8 * short
	)
	sink, address, line := s.outage()
	accepted := messages(address, 5)
	s.wantAccepted(s.publish(sink, accepted))

	line.Delay(limit * 6 / 10)
	var all []sinks.Message
	results := make([]sinks.Result, calls)
	var publishing sync.WaitGroup
	for i := range calls {
		batch := messages(address, 1)
		all = append(all, batch...)
		publishing.Go(func() { copy(results[i:], s.publishIn(sink, batch, limit)) })
	}
	publishing.Wait()
	line.Heal()
	warm := len(accepted)
	for i, r := range results {
		switch r.Outcome {
		case sinks.Accepted:
			accepted = append(accepted, all[i])
		case sinks.Unavailable:
		default:
			s.Errorf("call %d: got %v (%v), want accepted or unavailable", i, r.Outcome, r.Err)
		}
	}
	if len(accepted) == warm {
		s.Errorf("no call was accepted, the first had its turn at once: %v", results[0].Err)
	}
	s.reconcile(address, accepted, all, results)
}

// cutInFlight: connections break while messages are on their way.
func cutInFlight(s *suite) {
	sink, address, line := s.outage()
	accepted := messages(address, 5)
	s.wantAccepted(s.publish(sink, accepted))

	var lost []sinks.Message
	var results []sinks.Result
	timer := time.AfterFunc(short/10, line.Cut)
	defer timer.Stop()
	if !eventually(patience, func() bool {
		batch := messages(address, 50)
		got := s.publishIn(sink, batch, 5*short)
		if !slices.ContainsFunc(got, func(r sinks.Result) bool { return r.Outcome != sinks.Accepted }) {
			accepted = append(accepted, batch...)
			return false
		}
		lost, results = batch, got
		return true
	}) {
		s.Fatalf("every message is still accepted though the line is cut")
	}
	for i, r := range results {
		if r.Outcome == sinks.Rejected || r.Outcome == sinks.Failed {
			s.Errorf("result %d after the cut: got %v (%v), want unknown or unavailable", i, r.Outcome, r.Err)
		}
	}
	line.Heal()
	accepted = append(accepted, s.publishUntilAccepted(sink, address)...)
	s.reconcile(address, accepted, lost, results)
}

// publishUntilAccepted sends fresh messages, one by one, until one is accepted, and returns it.
func (s *suite) publishUntilAccepted(sink sinks.Sink, address string) []sinks.Message {
	s.Helper()
	var last sinks.Result
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		m := messages(address, 1)
		last = s.publishIn(sink, m, 5*short)[0]
		if last.Outcome == sinks.Accepted {
			return m
		}
	}
	s.Fatalf("the sink doesn't recover: %v (%v)", last.Outcome, last.Err)
	return nil
}

// reconcile compares a place with what was said of it: accepted is there, unavailable isn't, nothing is there twice
// (read sees to that).
func (s *suite) reconcile(address string, accepted, lost []sinks.Message, results []sinks.Result) {
	s.Helper()
	got := s.read(address, len(accepted))
	for _, m := range accepted {
		if _, ok := got[m.ID]; !ok {
			s.Errorf("message %s was accepted and isn't there", m.ID)
		}
	}
	for i, m := range lost {
		_, there := got[m.ID]
		switch {
		case there && results[i].Outcome == sinks.Unavailable:
			s.Errorf("message %d was unavailable (%v), that is never sent, and is there", i, results[i].Err)
		case !there && results[i].Outcome == sinks.Accepted:
			s.Errorf("message %d was accepted and isn't there", i)
		}
	}
}
