package relay

import (
	"context"
	"time"

	"github.com/jobrelay/relay/claim"
)

// lane is a set of workers for the routes that lead to the same sinks. One worker at a time claims for it, so idle
// workers don't all poll; whoever claimed hands the turn on before it publishes.
type lane struct {
	name string

	turn chan struct{} // held by the worker that claims
	wake chan struct{} // a hint that there is something to claim

	// Held by the turn.
	idle time.Duration // how long the next wait is
}

func newLane(name string) *lane {
	return &lane{name: name, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// hint wakes the worker that waits; many hints are one.
func (l *lane) hint() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next waits for the turn, then polls until it has claimed something. It returns nil when ctx ends.
func (r *Relay) next(ctx context.Context, l *lane) ([]claim.Lease, *admission) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, nil
	}
	for l.wait(ctx, r.PollMin) {
		adm := &admission{pauses: r.pauses, router: r.router, lane: l}
		leases, err := r.claim(adm)
		switch {
		case err != nil || len(leases) == 0:
			l.idle = min(max(2*l.idle, r.PollMin), r.PollMax)
			continue
		case r.full(leases):
			l.idle = 0
		default:
			l.idle = r.PollMin
		}
		return leases, adm
	}
	return nil, nil
}

// wait lets the pause between two claims pass; false when ctx ended. A hint cuts it to the shortest one.
func (l *lane) wait(ctx context.Context, shortest time.Duration) bool {
	if l.idle == 0 {
		return ctx.Err() == nil
	}
	if !sleep(ctx, min(shortest, l.idle)) {
		return false
	}
	select {
	case <-l.wake:
		l.idle = shortest
	case <-time.After(jitter(l.idle) - shortest):
	case <-ctx.Done():
		return false
	}
	return true
}

// full says whether there is likely more to claim at once.
func (r *Relay) full(leases []claim.Lease) bool {
	bytes := int64(0)
	for i := range leases {
		bytes += int64(leases[i].Size())
	}
	return len(leases) >= (r.batch.BatchSize+1)/2 || bytes >= r.batch.BatchBytes/2
}

// sleep waits; false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
