package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jobrelay/relay/internal/history"
)

// fault is something that happens to somebody for a while.
type fault struct {
	name, on string
	relay    *relay        // the only one that it concerns, nil for all
	lasts    time.Duration // from begin to end
	begin    func()
	end      func()
	harmless func() bool // asked after the end, nil is no
	forgets  bool        // as history.Fault's
	resent   bool        // as history.Fault's
}

func (f *fault) String() string {
	if f.relay != nil {
		return f.name + " (" + f.relay.name() + ")"
	}
	return f.name
}

// choose makes the next fault, or two at once that don't concern the same.
func (w *world) choose(rnd *rand.Rand) []*fault { return oneOrTwo(rnd, w.any) }

func oneOrTwo(rnd *rand.Rand, any func(*rand.Rand) *fault) []*fault {
	one := any(rnd)
	if rnd.IntN(3) > 0 {
		return []*fault{one}
	}
	for {
		other := any(rnd)
		if other.on != one.on {
			return []*fault{one, other}
		}
	}
}

// any makes a fault: of a relay, of a server or of a line, each about as often.
func (w *world) any(rnd *rand.Rand) *fault {
	if len(w.brokers) > 1 && rnd.IntN(3) == 0 {
		return w.clusterFault(rnd)
	}
	switch rnd.IntN(10) {
	case 0, 1, 2:
		return w.relayFault(rnd)
	case 3, 4, 5, 6:
		return w.serverFault(rnd)
	default:
		return w.lineFault(rnd)
	}
}

// strike lets faults happen, one within the other, notes when, and waits until jobs of every kind get through again.
func (w *world) strike(faults []*fault) {
	w.t.Helper()
	var names []string
	noted := make([]history.Fault, len(faults))
	longest := time.Duration(0)
	for i, f := range faults {
		noted[i] = history.Fault{Name: f.name, On: f.on, From: time.Now(), Forgets: f.forgets, Resent: f.resent}
		if f.relay != nil {
			noted[i].Relay = f.relay.name()
		}
		names = append(names, f.String())
		f.begin()
		noted[i].Struck = time.Now()
		longest = max(longest, f.lasts)
	}
	w.hold(longest)
	for i := len(faults) - 1; i >= 0; i-- {
		faults[i].end()
		noted[i].To = time.Now()
		noted[i].Harmless = faults[i].harmless != nil && faults[i].harmless()
	}
	w.faults = append(w.faults, noted...)
	took, last := w.progress(fmt.Sprintf("jobs get through after %s", strings.Join(names, " and ")))
	w.slowest = max(w.slowest, took)
	w.t.Logf("%s: recovered in %v, %s last", strings.Join(names, " and "), took.Round(10*time.Millisecond), last)
}

// hold lets a fault last; that is the one thing that only time can do.
func (w *world) hold(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}

// recovery is how long jobs of any kind may take to get through after a fault: a lease that has to end, the longest pause
// between two probes, and a slow machine.
const recovery = 60 * time.Second

// progress waits until a job of each kind that comes all the time is done after this moment. It says which was the last.
func (w *world) progress(what string) (took time.Duration, last string) {
	w.t.Helper()
	seen := map[string]bool{"poison": true}
	var want []string
	for _, kind := range traded {
		if !seen[kind] {
			seen[kind] = true
			want = append(want, kind)
		}
	}
	now := time.Now()
	took = w.await(recovery, what, `SELECT bool_and(EXISTS (SELECT FROM jobs WHERE kind = k AND finished_at > $2)) FROM unnest($1::text[]) k`, want, now)
	_ = w.db.Pool.QueryRow(w.t.Context(), `SELECT kind FROM jobs WHERE kind = ANY ($1) AND finished_at > $2 GROUP BY kind ORDER BY min(finished_at) DESC LIMIT 1`, want, now).Scan(&last)
	return took, last
}
