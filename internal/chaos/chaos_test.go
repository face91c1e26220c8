package chaos

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/history"
)

// drainBound is how long the backlog may take after the last fault: the longest pause between two probes is 30 s.
const drainBound = 90 * time.Second

// Producers, old workers, a replay and several relays at work, while relays are killed, stopped and restarted, servers
// stop, crash and refuse, and the lines between them hang, lose and break. In the end everything that committed has arrived, nothing
// else has, and every duplicate has a fault that explains it.
func TestChaos(t *testing.T) {
	t.Parallel()
	n := seed()
	t.Logf("seed %d: make chaos SEED=%d FOR=%v", n, n, span())
	w := newWorld(t, n, brokers())
	enough := w.askServers()
	w.begin()
	stop := w.trade()

	faults := rand.New(rand.NewPCG(n, 3))
	began := time.Now()
	var again sync.WaitGroup
	replayed := false
	for time.Since(began) < span() || !replayed {
		if !replayed && time.Since(began) > span()/3 {
			replayed = true
			again.Go(w.replay)
		}
		w.strike(w.choose(faults))
	}
	stop()
	again.Wait()
	took := w.drain()
	w.end()
	enough()

	r := history.Check(w.history())
	t.Logf("seed %d: %v of faults, drained in %v after the last one; the slowest recovery took %v\n%s",
		n, time.Since(began).Round(time.Second), took.Round(100*time.Millisecond), w.slowest.Round(100*time.Millisecond), r.Summary())
	for i, f := range r.Findings {
		if i == 50 {
			t.Errorf("and %d more", len(r.Findings)-i)
			break
		}
		t.Error(f)
	}
	if r.Messages < 500 || len(w.faults) == 0 {
		t.Errorf("%d messages and %d faults: the run tests nothing", r.Messages, len(w.faults))
	}
}
