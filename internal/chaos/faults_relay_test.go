package chaos

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/history"
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
		return &fault{name: "SIGSTOP past the lease", on: history.OnRelay, relay: r, lasts: lease + 1500*time.Millisecond,
			begin: func() { r.Signal(syscall.SIGSTOP) }, end: func() { r.Signal(syscall.SIGCONT) }}
	default:
		return w.restart(r)
	}
}

func (w *world) kill(r *relay) *fault {
	return &fault{name: "SIGKILL", on: history.OnRelay, relay: r, begin: r.Kill, end: func() { w.again(r) }}
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
