package chaos

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/stage"
)

// relayFault is a process that is killed, stopped past its lease, or restarted in an orderly way.
func (w *world) relayFault(rnd *rand.Rand) *fault {
	r := w.relays[rnd.IntN(relayCount)]
	switch rnd.IntN(5) {
	case 0:
		return w.kill(r)
	case 1:
		return w.killAll()
	case 2, 3:
		return w.pause(r, time.Duration(rnd.IntN(2500))*time.Millisecond)
	default:
		return w.restart(r)
	}
}

// pause stops a relay that has jobs in its hands until its leases are over, and lets it go on while the others, whose
// brokers answer slowly, have those jobs in theirs.
func (w *world) pause(r *relay, past time.Duration) *fault {
	return &fault{name: "SIGSTOP past the lease", on: history.OnRelay, relay: r, lasts: lease + past, begin: func() {
		w.answers(700 * time.Millisecond)
		w.untilHolding(r)
		r.Signal(syscall.SIGSTOP)
	}, end: func() {
		r.Signal(syscall.SIGCONT)
		w.answers(0)
	}}
}

// answers makes all brokers answer later by so much.
func (w *world) answers(later time.Duration) {
	for _, r := range w.relays {
		for on, lines := range r.lines {
			if on == history.OnDatabase {
				continue
			}
			for _, l := range lines {
				if later > 0 {
					l.Delay(stage.Down, later)
				} else {
					l.Heal()
				}
			}
		}
	}
}

func (w *world) kill(r *relay) *fault {
	return &fault{name: "SIGKILL", on: history.OnRelay, relay: r, begin: func() {
		w.untilHolding(r)
		r.Kill()
	}, end: func() { w.again(r) }}
}

// untilHolding waits a little for the moment in which a relay has jobs in its hands. The database may be away. Without a
// ledger it takes any moment: at a steady rate a relay holds some nearly always.
func (w *world) untilHolding(r *relay) {
	if !w.noted {
		w.hold(300 * time.Millisecond)
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()
	for holding := false; !holding && ctx.Err() == nil; {
		_ = w.db.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM jobs AS j WHERE status = 'running'
			AND (SELECT by FROM ledger AS l WHERE l.job = j.id ORDER BY n DESC LIMIT 1) = $1)`, r.name()).Scan(&holding)
	}
}

func (w *world) killAll() *fault {
	return &fault{name: "SIGKILL of all", on: history.OnRelay, begin: func() {
		for _, r := range w.relays {
			r.Kill()
		}
	}, end: func() {
		for _, r := range w.relays {
			w.again(r)
		}
	}}
}

// restart is harmless when the process could end what it had begun, as its exit code says.
func (w *world) restart(r *relay) *fault {
	code := -1
	return &fault{name: "SIGTERM", on: history.OnRelay, relay: r, begin: func() {
		w.overhear(r)
		r.Signal(syscall.SIGTERM)
	}, end: func() {
		if code = r.Wait(drainTimeout + 10*time.Second); code != 0 && code != 1 {
			w.t.Errorf("%s: exit code %d after SIGTERM\n%s", r.name(), code, r.Tail())
		}
		w.again(r)
	}, harmless: func() bool { return code == 0 }}
}

// again starts a relay that has ended.
func (w *world) again(r *relay) {
	w.keepLog(r)
	w.launch(r)
}
