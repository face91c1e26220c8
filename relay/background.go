package relay

import (
	"context"
	"time"
)

// How often the process sweeps and cleans up, and how long one round may take.
const (
	sweepEvery   = time.Second
	cleanEvery   = 10 * time.Second
	roundTimeout = 10 * time.Second
	slowSweeps   = 30 // in a row, until a line says so: a busy moment isn't worth one
)

// sweep looks every second for what claims leave out, and at once again while it finds something.
func (r *Relay) sweep(ctx context.Context) {
	slow := 0
	for every := time.Duration(0); sleep(ctx, every); {
		every = sweepEvery
		round, cancel := context.WithTimeout(ctx, roundTimeout)
		swept, err := r.queue.Sweep(round)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.database.report(sourceSweep, err)
		if err != nil {
			continue
		}
		r.metrics.swept(swept)
		if swept.Slow == "" {
			slow = 0
		} else if slow++; slow == slowSweeps {
			r.Log.Warn("sweeps are slow", "reason", swept.Slow)
		}
		if swept.Due > 0 {
			every = min(sweepEvery, r.PollMin)
			r.hint()
		}
	}
}

// clean removes finished jobs after their retention.
func (r *Relay) clean(ctx context.Context) {
	for every := time.Duration(0); sleep(ctx, every); every = jitter(cleanEvery * 4 / 5) {
		if _, err := r.queue.Clean(ctx, r.Retention, r.RetentionDead); err != nil && ctx.Err() == nil {
			r.Log.Warn("could not clean up finished jobs", "error", err)
		}
	}
}

// listen turns notifications into hints.
func (r *Relay) listen(ctx context.Context) {
	if r.Listener == nil {
		return
	}
	r.listening.Store("away")
	r.Listener.Run(ctx, r.hint, func(up bool) {
		word := map[bool]string{true: "ok", false: "away"}[up]
		r.listening.Store(word)
		if up {
			r.metrics.listenerUp.Set(1)
		} else {
			r.metrics.listenerUp.Set(0)
		}
	})
}

// hint wakes every lane.
func (r *Relay) hint() {
	for _, l := range r.router.lanes {
		l.hint()
	}
}

// check probes a place for the pauses.
func (r *Relay) check(ctx context.Context, at place) error {
	return r.checks[at.sink].check(ctx, r.Sinks[at.sink], at.address)
}

// resumed lets everything that waited for a place be claimed.
func (r *Relay) resumed(at place) {
	r.queue.Reset(func(kind string) bool {
		route := r.router.find(kind)
		if route == nil {
			return false
		}
		for _, d := range route.to {
			if d.sink == at.sink {
				return true
			}
		}
		return false
	})
	r.hint()
}
