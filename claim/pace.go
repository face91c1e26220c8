package claim

import (
	"context"
	"time"
)

// pace spreads work evenly: what was missed while something else took its time isn't made up for by a burst.
type pace struct {
	rate int // a second; 0: no bound
	next time.Time
}

// batchesASecond makes what is paced come evenly.
const batchesASecond = 10

// batch is how many to do at a time, at most most.
func (p *pace) batch(most int) int {
	if p.rate == 0 {
		return most
	}
	return min(max(p.rate/batchesASecond, 1), most)
}

// wait returns when n more may be done.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate == 0 {
		return ctx.Err()
	}
	now := time.Now()
	err := pause(ctx, p.next.Sub(now))
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	return err
}

// pause sleeps, or ends early with the reason why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
