package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"sync"

	"github.com/jobrelay/relay/sinks"
)

// thousand: many messages at once, each accepted and each there once.
func thousand(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	batch := messages(address, 1000)
	s.wantAccepted(s.publish(sink, batch))
	s.wantExactly(address, batch)
}

// order: within an address and key, messages arrive in the order of the batch, and of the calls.
func order(s *suite) {
	sink := s.open()
	addresses := []string{s.h.Address(s.T), s.h.Address(s.T)}
	if addresses[0] == addresses[1] {
		addresses = addresses[:1]
	}
	place := map[string]int{} // by id: when it was handed over
	sent := map[string][]sinks.Message{}
	for range 3 {
		var batch []sinks.Message
		for i := range 120 {
			key := fmt.Sprintf("key-%d", i%7)
			m := message(addresses[i%len(addresses)])
			m.Key = &key
			place[m.ID] = len(place)
			batch = append(batch, m)
			sent[m.Address] = append(sent[m.Address], m)
		}
		s.wantAccepted(s.publish(sink, batch))
	}
	for _, address := range addresses {
		last := map[string]int{}
		got := s.h.Read(s.T, address, len(sent[address]))
		if len(got) != len(sent[address]) {
			s.Errorf("%d messages arrived at %q, want %d", len(got), address, len(sent[address]))
		}
		for _, r := range got {
			key := show(r.Key)
			if before, ok := last[key]; ok && place[r.ID] < before {
				s.Errorf("%s: message %d of the run arrived after message %d", key, place[r.ID], before)
			}
			last[key] = place[r.ID]
		}
	}
}

// missingAmongAddresses: a place that doesn't exist is an outage of that place alone.
func missingAmongAddresses(s *suite) {
	sink, missing := s.open(), s.h.Missing(s.T)
	for range 2 { // the second time the sink knows about the missing one
		addresses := []string{s.h.Address(s.T), missing, s.h.Address(s.T)}
		batch := messages("", 30)
		for i := range batch {
			batch[i].Address = addresses[i%3]
		}
		results := s.publish(sink, batch)
		for i := range batch {
			if i%3 == 1 {
				s.want(results, i, sinks.Unavailable, s.gone(missing))
			} else {
				s.want(results, i, sinks.Accepted, 0)
			}
		}
		s.wantExactly(addresses[0], every(batch, 0, 3))
		s.wantExactly(addresses[2], every(batch, 2, 3))
	}
}

// gone is what a missing address concerns: the wider place that it lies in, if there is one.
func (s *suite) gone(address string) sinks.Scope {
	if s.h.Parent != nil && s.h.Parent(address) != "" {
		return sinks.ScopeParent
	}
	return sinks.ScopeAddress
}

// every takes each n-th message.
func every(batch []sinks.Message, first, n int) (out []sinks.Message) {
	for i := first; i < len(batch); i += n {
		out = append(out, batch[i])
	}
	return out
}

// resultsByIndex: bad ones scattered without a pattern; each result is at the index of its message.
func resultsByIndex(s *suite) {
	sink, good, missing := s.open(), s.h.Address(s.T), s.h.Missing(s.T)
	batch := messages(good, 64)
	bad := map[int]bool{}
	for i, n := 0, 1; i < len(batch); i, n = i+n, n*2%7+1 {
		bad[i] = true
		batch[i].Address = missing
	}
	results := s.publish(sink, batch)
	var sent []sinks.Message
	for i, m := range batch {
		if bad[i] {
			s.want(results, i, sinks.Unavailable, s.gone(missing))
			continue
		}
		s.want(results, i, sinks.Accepted, 0)
		sent = append(sent, m)
	}
	s.wantExactly(good, sent)
}

var figures = regexp.MustCompile(`\d{3,}`)

// tooLarge: one message that can't fit is rejected with its size and the limit; all around it are accepted.
func tooLarge(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	batch := messages(address, 21)
	const big = 10
	batch[big].Payload = append(append([]byte(`{"secret": "`+canary), bytes.Repeat([]byte("x"), s.h.TooLarge)...), `"}`...)
	key := "the key of all" // the same partition or group, so that they meet in one request
	for i := range batch {
		batch[i].Key = &key
	}
	results := s.publish(sink, batch)
	for i := range batch {
		if i != big {
			s.want(results, i, sinks.Accepted, 0)
		}
	}
	s.want(results, big, sinks.Rejected, sinks.ScopeMessage)
	if err := results[big].Err; err != nil && len(figures.FindAllString(err.Error(), -1)) < 2 {
		s.Errorf("the error should name the size and the limit: %v", err)
	}
	s.wantExactly(address, append(batch[:big:big], batch[big+1:]...))
}

// refused: what this broker can never accept is rejected alone.
func refused(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	var sent, batch []sinks.Message
	names := map[int]string{}
	for name, spoil := range s.h.Refused {
		m := message(address)
		spoil(&m)
		names[len(batch)+1] = name
		good := messages(address, 2)
		sent = append(sent, good...)
		batch = append(batch, good[0], m, good[1])
	}
	results := s.publish(sink, batch)
	for i := range batch {
		if name, bad := names[i]; !bad {
			s.want(results, i, sinks.Accepted, 0)
		} else if r := results[i]; r.Outcome != sinks.Rejected || r.Scope != sinks.ScopeMessage {
			s.Errorf("%s: got %v of the %v (%v), want rejected of the message", name, r.Outcome, r.Scope, r.Err)
		}
	}
	s.wantExactly(address, sent)
}

// concurrent: many callers at once, each with results of its own.
func concurrent(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	missing := ""
	if s.h.Missing != nil {
		missing = s.h.Missing(s.T)
	}
	const callers, calls, size = 16, 3, 16
	var (
		mu   sync.Mutex
		sent []sinks.Message
		all  sync.WaitGroup
	)
	for caller := range callers {
		all.Go(func() {
			for range calls {
				batch := messages(address, size)
				bad := caller % size
				if missing != "" {
					batch[bad].Address = missing
				}
				results := s.publish(sink, batch)
				for i := range batch {
					if missing != "" && i == bad {
						s.want(results, i, sinks.Unavailable, s.gone(missing))
						continue
					}
					s.want(results, i, sinks.Accepted, 0)
					mu.Lock()
					sent = append(sent, batch[i])
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	s.wantExactly(address, sent)
}

// emptyBatch: nothing to do is no reason to fail.
func emptyBatch(s *suite) {
	sink := s.open()
	s.publish(sink, nil)
	s.publish(sink, []sinks.Message{})
}

// alreadyCancelled: time over before anything was sent.
func alreadyCancelled(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cancel()
	results := s.publishCtx(ctx, sink, messages(address, 20), 0)
	for i, r := range results {
		if r.Outcome != sinks.Unavailable {
			s.Errorf("result %d: got %v (%v), want unavailable: the context was over before the call", i, r.Outcome, r.Err)
		}
	}
	marker := messages(address, 1)
	s.wantAccepted(s.publish(sink, marker))
	s.wantExactly(address, marker)
}
