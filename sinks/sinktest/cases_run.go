package sinktest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// keepsOrder says whether the harness's sink is a Sequencer, which must then pass the cases of this file.
func keepsOrder(t *testing.T, h Harness) bool {
	t.Helper()
	s := &suite{T: t, h: h}
	sink := h.Open(t)
	defer s.close(sink)
	_, ok := sink.(sinks.Sequencer)
	return ok
}

// runOf makes n messages of one key whose order counts.
func runOf(address, key string, n int) []sinks.Message {
	batch := messages(address, n)
	for i := range batch {
		batch[i].Key, batch[i].Ordered = &key, true
	}
	return batch
}

// interleave deals runs out into one batch, in turns.
func interleave(runs ...[]sinks.Message) (batch []sinks.Message) {
	for i := 0; len(batch) == 0 || i < len(runs[0]); i++ {
		for _, r := range runs {
			if i < len(r) {
				batch = append(batch, r[i])
			}
		}
	}
	return batch
}

// wholeRun: runs of several keys in one batch, with messages between them whose order doesn't count, small ones and ones
// so large that a broker takes no run of them at once.
func wholeRun(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	var sent []sinks.Message
	for _, size := range []int{0, 30_000} {
		batch := interleave(runOf(address, "a", 60), runOf(address, "b", 60), messages(address, 30), runOf(address, "c", 10))
		for i := range batch {
			if size > 0 {
				batch[i].Payload = append(append([]byte(`{"text": "`), bytes.Repeat([]byte("x"), size)...), `"}`...)
			}
		}
		s.wantAccepted(s.publish(sink, batch))
		sent = append(sent, batch...)
	}
	s.wantRuns(address, sent, 1)
}

// wantRuns fails unless the place has received the messages, those of a key in order. Where copies are more than one may
// be, then neither the first nor the last ones of a key's messages are out of order.
func (s *suite) wantRuns(address string, sent []sinks.Message, copies int) {
	s.Helper()
	place, seen := map[string]int{}, map[string]int{}
	for i, m := range sent {
		place[m.ID] = i
	}
	first, last := map[string][]int{}, map[string][]int{}
	for _, r := range s.h.Read(s.T, address, len(sent)) {
		at, known := place[r.ID]
		if seen[r.ID]++; !known || seen[r.ID] > copies {
			s.Errorf("message %s arrived %d times", r.ID, seen[r.ID])
		}
		if !sent[at].Ordered {
			continue
		}
		key := show(r.Key)
		if seen[r.ID] == 1 {
			first[key] = append(first[key], at)
		}
		last[key] = append(slices.DeleteFunc(last[key], func(n int) bool { return n == at }), at)
	}
	if len(seen) != len(sent) {
		s.Errorf("%d different messages arrived, want %d", len(seen), len(sent))
	}
	for key := range first {
		if !slices.IsSorted(first[key]) || !slices.IsSorted(last[key]) {
			s.Errorf("%s is out of order: first copies %v, last copies %v", key, first[key], last[key])
		}
	}
}

// refusedInRun: a message in the middle of a run can never be accepted. What is before it is, what is behind it isn't
// sent and isn't to blame; other keys and messages whose order doesn't count don't mind.
func refusedInRun(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	spoils := map[string]func(*sinks.Message){}
	for name, spoil := range s.h.Refused {
		spoils[name] = spoil
	}
	if s.h.TooLarge > 0 {
		spoils["too large"] = func(m *sinks.Message) {
			m.Payload = append(append([]byte(`{"text": "`), bytes.Repeat([]byte("x"), s.h.TooLarge)...), `"}`...)
		}
	}
	var sent []sinks.Message
	for name, spoil := range spoils {
		const bad = 4
		spoilt := runOf(address, "spoilt by "+name, 9)
		spoil(&spoilt[bad])
		if spoilt[bad].Key == nil || *spoilt[bad].Key != *spoilt[0].Key {
			continue // it spoils the key: no run any more
		}
		batch := interleave(spoilt, runOf(address, "good beside "+name, 9), messages(address, 9))
		results := s.publish(sink, batch)
		for i := range batch {
			switch at := i / 3; {
			case i%3 != 0 || at < bad:
				s.want(results, i, sinks.Accepted, 0)
				sent = append(sent, batch[i])
			case at == bad:
				s.want(results, i, sinks.Rejected, sinks.ScopeMessage)
			default:
				s.want(results, i, sinks.Unavailable, sinks.ScopeMessage)
			}
		}
	}
	s.wantRuns(address, sent, 1)
}

// runsAtOnce: two callers send runs of different keys to one place at the same time.
func runsAtOnce(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	const calls = 15
	sent := make([][]sinks.Message, 2)
	var all sync.WaitGroup
	for caller := range sent {
		for range calls {
			runs := make([][]sinks.Message, 4)
			for i := range runs {
				runs[i] = runOf(address, fmt.Sprintf("%d of caller %d", i, caller), 5)
			}
			sent[caller] = append(sent[caller], interleave(runs...)...)
		}
		all.Go(func() {
			for batch := range slices.Chunk(sent[caller], 20) {
				s.checkAccepted(s.publish(sink, batch))
			}
		})
	}
	all.Wait()
	s.wantRuns(address, slices.Concat(sent...), 1)
}

// checkAccepted is wantAccepted for goroutines, which can't end the case.
func (s *suite) checkAccepted(results []sinks.Result) {
	s.Helper()
	for i := range results {
		s.want(results, i, sinks.Accepted, 0)
	}
}

// runRecovery: no word on a run, which is then sent again. Nothing is accepted behind a message that isn't, and copies of
// the first attempt don't come behind what was accepted since.
func runRecovery(s *suite) {
	sink, address, line := s.outage()
	sent := runOf(address, "a", 12)
	s.wantAccepted(s.publish(sink, sent[:2]))
	line.Swallow()
	lost := s.publishIn(sink, sent[2:6], 2*short)
	s.wantNoWord(lost)
	line.Heal()
	from := 2
	for end := time.Now().Add(patience); from < len(sent); {
		if time.Now().After(end) {
			s.Fatalf("the sink doesn't recover: %d of %d messages are accepted", from, len(sent))
		}
		batch := sent[from:min(from+3, len(sent))]
		results := s.publishIn(sink, batch, 5*short)
		n := 0
		for n < len(batch) && results[n].Outcome == sinks.Accepted {
			n++
		}
		for i := n; i < len(batch); i++ {
			if o := results[i].Outcome; o != sinks.Unknown && o != sinks.Unavailable {
				s.Fatalf("result %d: got %v (%v) behind one that was %v", i, o, results[i].Err, results[n].Outcome)
			}
		}
		if from += n; n == 0 {
			time.Sleep(pause)
		}
	}
	s.wantRuns(address, sent, len(sent))
}
