package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Swept is what one call of Sweep did.
type Swept struct {
	Due    int            // due jobs found below a floor (they can be claimed now); when > 0 call Sweep again soon
	Reaped map[string]int // expired leases that ended, by kind
	Dead   map[string]int // those of them that are dead, their attempts used up, by kind
	Pairs  int            // known pairs
	// Slow says why sweeps are costly, "" when they aren't: who holds an old snapshot.
	Slow string
}

const (
	sliceRows = 5000
	reapRows  = 1000
	// idle is how long a pair goes without a claim until sweeps look at all of it: its floor doesn't move any more, but
	// leases still run out.
	idle = 5 * time.Second
)

// sweeper is what sweeps remember.
type sweeper struct {
	pairsRead  time.Time
	pairsPause time.Duration
	swept      time.Time
}

// strip is how far the sweep of one pair has come.
type strip struct{ from point }

// slice is one piece of the pending index, and what was found in it.
type slice struct {
	*pair
	from, to point
	lacking  string
	moved    int
	n, due   int
	last     point
	dueAt    point
	expired  []int64
}

// Sweep does one slice of the work that claims leave out: it looks for new pairs, for due jobs below the floors, and
// for expired leases, which it gives back or lets die (`lease expired`). Call it once a second.
func (q *Queue) Sweep(ctx context.Context) (Swept, error) {
	q.sweeping.Lock()
	defer q.sweeping.Unlock()
	out := Swept{Reaped: map[string]int{}, Dead: map[string]int{}}
	if err := q.refresh(ctx); err != nil {
		return out, fmt.Errorf("sweep: %w", err)
	}
	slices := q.slices()
	out.Pairs = len(slices)
	if len(slices) == 0 {
		return out, nil
	}
	if err := q.s.look(ctx, slices); err != nil {
		return out, fmt.Errorf("sweep: %w", err)
	}
	out.Due = q.found(slices)
	if err := q.reap(ctx, slices, &out); err != nil {
		return out, fmt.Errorf("reap: %w", err)
	}
	return out, nil
}

// slices cuts the next piece of every pair.
func (q *Queue) slices() []*slice {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	since := now.Sub(q.sweeper.swept).Seconds()
	q.sweeper.swept = now
	var out []*slice
	for _, p := range q.all() {
		p.rate, p.taken = float64(p.taken)/max(since, 0.1), 0
		to := p.floor
		if now.Sub(p.asked) > idle {
			to = pointAt(now)
		}
		out = append(out, &slice{pair: p, from: p.strip.from, to: to, lacking: p.lacking, moved: p.moved})
	}
	return out
}

// look reads what lies in the slices.
func (s *Store) look(ctx context.Context, slices []*slice) error {
	n := len(slices)
	kinds, priorities, lacking := make([]string, n), make([]int16, n), make([]string, n)
	fromAt, toAt := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
	fromID, toID := make([]int64, n), make([]int64, n)
	for i, c := range slices {
		kinds[i], priorities[i], lacking[i] = c.Kind, c.Priority, c.lacking
		fromAt[i], fromID[i], toAt[i], toID[i] = c.from.timestamp(), c.from.id, c.to.timestamp(), c.to.id
	}
	return s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claimSettings, s.timeout())
		b.Queue(s.sql.sweep, kinds, priorities, fromAt, fromID, toAt, toID, lacking, int32(sliceRows)).Query(func(rows pgx.Rows) error {
			var ord, n, due int
			var lastAt, dueAt pgtype.Timestamptz
			var lastID *int64
			var expired []int64
			_, err := pgx.ForEachRow(rows, []any{&ord, &n, &lastAt, &lastID, &due, &dueAt, &expired}, func() error {
				c := slices[ord-1]
				c.n, c.due, c.expired = n, due, append([]int64(nil), expired...)
				if lastID != nil {
					c.last = pointOf(lastAt, *lastID)
				}
				c.dueAt = pointOf(dueAt, bottom.id)
				return nil
			})
			return err
		})
	})
}

// found moves the strips on, and lowers the floors to what is due below them.
func (q *Queue) found(slices []*slice) (due int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range slices {
		c.strip.from = bottom
		if c.n == sliceRows {
			c.strip.from = c.last
		}
		if c.due > 0 && c.dueAt.less(c.floor) {
			c.lower(c.dueAt)
			due += c.due
		}
	}
	return due
}

// reap ends expired leases, and lowers the floors to the jobs that are ready again.
func (q *Queue) reap(ctx context.Context, slices []*slice, out *Swept) error {
	for _, c := range slices {
		for ids := c.expired; len(ids) > 0; {
			n := min(len(ids), reapRows)
			if err := q.reapSome(ctx, ids[:n], out); err != nil {
				return err
			}
			ids = ids[n:]
		}
	}
	return nil
}

func (q *Queue) reapSome(ctx context.Context, ids []int64, out *Swept) error {
	type row struct {
		at    Pair
		runAt pgtype.Timestamptz
		id    int64
		dead  bool
	}
	var ended []row
	err := q.s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(q.s.sql.settleSettings, q.s.timeout(), "on")
		b.Queue(q.s.sql.reap, ids).Query(func(rows pgx.Rows) error {
			var r row
			_, err := pgx.ForEachRow(rows, []any{&r.at.Kind, &r.at.Priority, &r.runAt, &r.id, &r.dead}, func() error {
				ended = append(ended, r)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range ended {
		out.Reaped[r.at.Kind]++
		if r.dead {
			out.Dead[r.at.Kind]++
		} else if p := q.find(r.at); p != nil {
			p.lower(pointOf(r.runAt, r.id-1))
		}
	}
	return nil
}
