package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jobrelay/relay/claim"
)

// hold keeps a batch's leases until it is settled.
type hold struct {
	stop func()
	done chan struct{}

	mu    sync.Mutex
	until time.Time // when the first of the leases ends
	lost  map[int64]bool
}

// keep renews the leases of a batch at a third of their length, in a goroutine that release ends and waits for.
func (r *Relay) keep(leases []claim.Lease) *hold {
	ctx, stop := context.WithCancel(r.drain.work)
	h := &hold{stop: stop, done: make(chan struct{})}
	held := make([]*claim.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
	}
	h.renewed(held)
	go func() {
		defer close(h.done)
		tick := time.NewTicker(r.batch.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				held = r.extend(ctx, h, held)
			}
		}
	}()
	return h
}

// extend renews once and returns the leases that are still ours. When the database is away the leases run on as they
// are, and the publishing is given up in time.
func (r *Relay) extend(ctx context.Context, h *hold, held []*claim.Lease) []*claim.Lease {
	lost, err := r.queue.Extend(ctx, held)
	if ctx.Err() != nil {
		return held
	}
	r.database.report(sourceSettle, err)
	if err != nil {
		return held
	}
	ours := h.forget(held, lost)
	h.renewed(ours)
	r.metrics.lost(len(lost))
	if len(lost) > 0 {
		r.Log.Warn("leases were lost while their jobs were in flight", "jobs", len(lost), "job_id", lost[0])
	}
	return ours
}

// forget notes the lost leases and returns the others.
func (h *hold) forget(held []*claim.Lease, lost []int64) []*claim.Lease {
	if len(lost) == 0 {
		return held
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		h.lost = map[int64]bool{}
	}
	for _, id := range lost {
		h.lost[id] = true
	}
	ours := make([]*claim.Lease, 0, len(held))
	for _, l := range held {
		if !h.lost[l.ID] {
			ours = append(ours, l)
		}
	}
	return ours
}

// renewed takes over the leases' new end.
func (h *hold) renewed(held []*claim.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = time.Time{}
	for _, l := range held {
		if h.until.IsZero() || l.Until.Before(h.until) {
			h.until = l.Until
		}
	}
}

// ends is when the first lease of the batch ends, as far as it was renewed.
func (h *hold) ends() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// isLost says whether the job is no longer ours.
func (h *hold) isLost(id int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[id]
}

// release ends the renewing and waits for it.
func (h *hold) release() {
	h.stop()
	<-h.done
}
