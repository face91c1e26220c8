package sinktest

import (
	"context"
	"strings"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// closeTwice: the second time there is nothing to do, and what comes later finds no sink.
func closeTwice(s *suite) {
	sink, address := s.h.Open(s.T), s.h.Address(s.T)
	s.wantAccepted(s.publish(sink, messages(address, 3)))
	s.close(sink)
	s.close(sink)
	for i, r := range s.publishIn(sink, messages(address, 3), 3*short) {
		if r.Outcome != sinks.Unavailable {
			s.Errorf("result %d after Close: got %v (%v), want unavailable", i, r.Outcome, r.Err)
		}
	}
	s.close(s.h.Open(s.T)) // never used
}

// closeInFlight: Close while callers publish. What was said holds, whoever won.
func closeInFlight(s *suite) {
	sink, address := s.h.Open(s.T), s.h.Address(s.T)
	started := make(chan struct{}, 8)
	type call struct {
		batch   []sinks.Message
		results []sinks.Result
	}
	ended := make(chan call, cap(started))
	for range cap(started) {
		go func() {
			batch := messages(address, 200)
			started <- struct{}{}
			c := call{batch, nil}
			defer func() { ended <- c }()
			c.results = s.publish(sink, batch)
		}()
	}
	for range cap(started) {
		<-started
	}
	s.close(sink)
	var all, accepted []sinks.Message
	var results []sinks.Result
	for range cap(started) {
		select {
		case c := <-ended:
			all, results = append(all, c.batch...), append(results, c.results...)
		case <-time.After(late):
			s.Fatalf("Publish still runs %v after Close", late)
		}
	}
	if len(results) != len(all) {
		s.FailNow()
	}
	for i, r := range results {
		if r.Outcome == sinks.Rejected || r.Outcome == sinks.Failed {
			s.Errorf("result %d: got %v (%v), want accepted, unknown or unavailable", i, r.Outcome, r.Err)
		}
		if r.Outcome == sinks.Accepted {
			accepted = append(accepted, all[i])
		}
	}
	s.reconcile(address, accepted, all, results)
}

// closeSilent: Close ends a call that waits for an answer.
func closeSilent(s *suite) {
	sink, address := s.silent()
	ended := make(chan []sinks.Result, 1)
	go func() { ended <- s.publish(sink, messages(address, 20)) }()
	time.Sleep(pause) // whether the call has got as far as waiting can't be seen from here; every moment must do
	s.close(sink)
	select {
	case results := <-ended:
		s.wantNoWord(results)
	case <-time.After(late):
		s.Fatalf("Publish still waits %v after Close", late)
	}
}

// checkWorking: the check of a working place passes and leaves nothing there.
func checkWorking(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	for _, a := range []string{address, "", address} {
		if err := s.check(sink, a, patience); err != nil {
			s.Errorf("Check(%q): %v", a, err)
		}
	}
	marker := messages(address, 1)
	s.wantAccepted(s.publish(sink, marker))
	if err := s.check(sink, address, patience); err != nil {
		s.Errorf("Check(%q): %v", address, err)
	}
	s.wantExactly(address, marker)
}

func checkMissing(s *suite) {
	sink, address := s.open(), s.h.Missing(s.T)
	for range 2 {
		s.wantCheckFails(sink, address, patience)
	}
	if s.gone(address) == sinks.ScopeParent {
		s.wantCheckFails(sink, s.h.Parent(address), patience)
	}
}

func checkAway(s *suite) {
	sink, address := s.away()
	s.wantCheckFails(sink, address, 3*short)
	s.wantCheckFails(sink, "", 3*short)
}

func checkSilent(s *suite) {
	sink, address := s.silent()
	s.wantCheckFails(sink, address, short)
	s.wantCheckFails(sink, "", short)
}

// check asks whether an address takes messages, and fails when no answer comes in time.
func (s *suite) check(sink sinks.Sink, address string, limit time.Duration) (err error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s.within(limit+late, "Check", func() { err = sink.Check(ctx, address) })
	return err
}

func (s *suite) wantCheckFails(sink sinks.Sink, address string, limit time.Duration) {
	s.Helper()
	err := s.check(sink, address, limit)
	if err == nil {
		s.Errorf("Check(%q): got nil, want an error", address)
	} else if !strings.Contains(err.Error(), address) {
		s.Errorf("Check(%q): the error should name the address: %v", address, err)
	}
}
