package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// patience is the deadline of what should succeed. It only bounds what never comes.
var patience = time.Minute

// How long the suite waits otherwise.
const (
	short  = time.Second            // deadline of a call that can't
	late   = 2 * time.Second        // how long after its deadline a call may return: the contract's second, and one for a busy machine
	settle = 10 * time.Second       // for goroutines to end once nobody needs them
	tick   = 10 * time.Millisecond  // between two looks at a condition
	pause  = 100 * time.Millisecond // between two tries while a broker comes back
)

// Run runs the whole suite: one parallel subtest for each promise.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.keepsOrder = keepsOrder(t, h)
	for _, c := range cases {
		if c.needs != nil && !c.needs(h) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			owned(t, func() { c.run(&suite{T: t, h: h}) })
		})
	}
}

// A promise is one case of the suite.
type promise struct {
	name  string
	needs func(Harness) bool // nil: every harness has what it needs
	run   func(*suite)
}

var cases = []promise{
	{"form", nil, messageForm},
	{"keys", nil, nullAndEmptyKey},
	{"headers", nil, headerTypes},
	{"odd-headers", nil, oddHeaders},
	{"json-text", nil, jsonText},
	{"opaque-bytes", nil, opaqueBytes},
	{"empty-body", nil, emptyBody},

	{"thousand", nil, thousand},
	{"order", func(h Harness) bool { return !h.Unordered }, order},
	{"run", Harness.isSequencer, wholeRun},
	{"run-refused", func(h Harness) bool { return h.keepsOrder && h.canRefuse() }, refusedInRun},
	{"run-at-once", Harness.isSequencer, runsAtOnce},
	{"run-recovery", func(h Harness) bool { return h.keepsOrder && h.Outage != nil }, runRecovery},
	{"addresses", func(h Harness) bool { return h.Missing != nil }, missingAmongAddresses},
	{"index", func(h Harness) bool { return h.Missing != nil }, resultsByIndex},
	{"too-large", func(h Harness) bool { return h.TooLarge > 0 }, tooLarge},
	{"refused", func(h Harness) bool { return len(h.Refused) > 0 }, refused},
	{"concurrent", nil, concurrent},
	{"empty-batch", nil, emptyBatch},

	{"cancelled", nil, alreadyCancelled},
	{"silent", Harness.canBeSilent, silentBroker},
	{"away", Harness.canBeAway, brokerAway},
	{"recovery", func(h Harness) bool { return h.Outage != nil }, recovery},
	{"slow", func(h Harness) bool { return h.Outage != nil }, slowBroker},
	{"cut", func(h Harness) bool { return h.Outage != nil }, cutInFlight},

	{"check", nil, checkWorking},
	{"check-missing", func(h Harness) bool { return h.Missing != nil }, checkMissing},
	{"check-away", func(h Harness) bool { return h.canBeAway() && !h.BlindCheck }, checkAway},
	{"check-silent", func(h Harness) bool { return h.canBeSilent() && !h.BlindCheck }, checkSilent},
	{"close", nil, closeTwice},
	{"close-in-flight", nil, closeInFlight},
	{"close-silent", Harness.canBeSilent, closeSilent},
}

func (h Harness) isSequencer() bool { return h.keepsOrder }
func (h Harness) canRefuse() bool   { return h.TooLarge > 0 || len(h.Refused) > 0 }
func (h Harness) canBeSilent() bool { return h.Silent != nil || h.Outage != nil }
func (h Harness) canBeAway() bool   { return h.Away != nil || h.Outage != nil }

// suite is one case under way.
type suite struct {
	*testing.T
	h Harness
}

// open returns a sink on a working broker that is closed when the case ends.
func (s *suite) open() sinks.Sink {
	s.Helper()
	return s.closed(s.h.Open(s.T))
}

func (s *suite) silent() (sinks.Sink, string) {
	s.Helper()
	if s.h.Silent != nil {
		sink, address := s.h.Silent(s.T)
		return s.closed(sink), address
	}
	sink, address, line := s.h.Outage(s.T)
	line.Swallow()
	return s.closed(sink), address
}

func (s *suite) away() (sinks.Sink, string) {
	s.Helper()
	if s.h.Away != nil {
		return s.closed(s.h.Away(s.T)), s.h.Address(s.T)
	}
	sink, address, line := s.h.Outage(s.T)
	line.Cut()
	return s.closed(sink), address
}

func (s *suite) outage() (sinks.Sink, string, Line) {
	s.Helper()
	sink, address, line := s.h.Outage(s.T)
	return s.closed(sink), address, line
}

func (s *suite) closed(sink sinks.Sink) sinks.Sink {
	s.Cleanup(func() { s.close(sink) })
	return sink
}

// close closes a sink and fails when that doesn't return in time.
func (s *suite) close(sink sinks.Sink) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	s.within(settle+late, "Close", func() {
		if err := sink.Close(ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
}

// within runs f and ends the case when it takes longer than it may. f then runs on: nothing can stop it.
func (s *suite) within(limit time.Duration, what string, f func()) time.Duration {
	s.Helper()
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		s.Fatalf("%s hasn't returned after %v", what, limit)
	}
	return time.Since(start)
}

const label = "sinktest"

// owned runs f and fails when a goroutine that f or anything it called has started outlives the case. Goroutines carry
// the label of the one that started them, which tells the cases apart though they run at the same time.
func owned(t *testing.T, f func()) {
	t.Cleanup(func() { // registered first, so it runs when everything else has been cleaned up
		var left []string
		eventually(settle, func() bool {
			left = goroutines(t.Name())
			return len(left) == 0
		})
		if len(left) > 0 {
			t.Errorf("%d kinds of goroutines still run after Close, for example:\n%s", len(left), left[0])
		}
	})
	pprof.Do(context.Background(), pprof.Labels(label, t.Name()), func(context.Context) { f() })
}

// goroutines returns the stacks of the goroutines that a case has started, those that are alike as one.
func goroutines(name string) []string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	mark := fmt.Sprintf("%q:%q", label, name)
	var found []string
	_, stacks, _ := strings.Cut(b.String(), "\n") // after the line with the total
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(stack, mark) {
			found = append(found, stack)
		}
	}
	return found
}

// count adds up the goroutines in such stacks, of which each begins with its number.
func count(stacks []string) int {
	sum := 0
	for _, stack := range stacks {
		var n int
		_, _ = fmt.Sscanf(stack, "%d @", &n)
		sum += n
	}
	return sum
}

// eventually looks at a condition, ever less often, until it holds or the time is over. On a machine so busy that one
// look takes all the time it looks a few times more.
func eventually(limit time.Duration, holds func() bool) bool {
	wait := tick
	for end, looks := time.Now().Add(limit), 1; ; looks++ {
		if holds() {
			return true
		}
		if looks >= 5 && time.Now().After(end) {
			return false
		}
		time.Sleep(wait)
		wait = min(2*wait, 50*tick)
	}
}
