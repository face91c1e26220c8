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
	// idle is how long a pair goes without a claim until sweeps look at all of it: its floor doesn't move any more, but
	// leases still run out.
	idle = 5 * time.Second
	// Of one call: slices are looked at until this much time is spent, more when a whole pass would take over ten calls.
	sweepBudget = 50 * time.Millisecond
	sweepMost   = 500 * time.Millisecond
	sweepCalls  = 8
	// heldAfter is the age from which a snapshot counts as held.
	heldAfter = 2 * time.Second
	// slowPass is the time of a whole pass from which sweeps count as costly.
	slowPass = 200 * time.Millisecond
)

// sweeper is what sweeps remember.
type sweeper struct {
	pairsRead  time.Time
	pairsPause time.Duration
	pairsMost  time.Duration // bound of the next skip scan
	pairsLate  bool          // the last one was cut off
	pairsNext  time.Time     // then: when the next one is made
	swept      time.Time
	turn       int
	holder     string // who has the oldest snapshot
	since      time.Time
}

// slice is one piece of the pending index, and what was found in it.
type slice struct {
	*pair
	from, to point
	lacking  string

	rows, due            int
	last, dueAt, dueLast point
	expired              []int64
	ids                  []int64  // of the due ones, where a floor can't lead to them
	keys                 []string // of the due ones, where walks from key to key take too long
	steep                bool
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
	holder, err := q.observe(ctx)
	if err != nil {
		return out, fmt.Errorf("sweep: %w", err)
	}
	light, heavy, cost := q.strips()
	out.Pairs = len(light) + len(heavy)
	late, err := q.lookAt(ctx, light, &out)
	if err != nil {
		return out, fmt.Errorf("sweep: %w", err)
	}
	if late { // each by itself then, at once
		heavy, cost = append(heavy, light...), max(cost, sweepCalls*sweepMost)
	}
	if err := q.lookThrough(ctx, heavy, cost, &out); err != nil {
		return out, fmt.Errorf("sweep: %w", err)
	}
	if cost > slowPass || q.sweeper.pairsLate {
		out.Slow = holder
	}
	return out, nil
}

// observe notices a held snapshot: one that is still there, unmoved, after a while. It says who holds it.
func (q *Queue) observe(ctx context.Context) (holder string, err error) {
	s, err := q.s.oldestSnapshot(ctx)
	if err != nil {
		return "", err
	}
	now, key := time.Now(), ""
	if s != nil {
		key = fmt.Sprint(s.PID, s.Application, s.xmin)
	}
	if key != q.sweeper.holder {
		q.sweeper.holder, q.sweeper.since = key, now
	}
	held := key != "" && (now.Sub(q.sweeper.since) >= heldAfter || s.AgeSeconds >= heldAfter.Seconds())
	q.mu.Lock()
	q.held = held
	q.mu.Unlock()
	if held {
		return "an old snapshot keeps vacuum from removing what was done: " + s.String(), nil
	}
	return "vacuum doesn't keep up with removing what was done", nil
}

// strips sorts the pairs into those that one statement looks at together, and those whose slices are looked at one by one; cost
// is the time of a whole pass.
func (q *Queue) strips() (light, heavy []*pair, cost time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	since := max(now.Sub(q.sweeper.swept).Seconds(), 0.001)
	q.sweeper.swept = now
	for _, p := range q.all() {
		p.rate += (float64(p.taken)/since - p.rate) / 2
		p.taken = 0
		cost += p.strip.cost()
		if p.strip.single() {
			light = append(light, p)
		} else {
			heavy = append(heavy, p)
		}
	}
	return light, heavy, cost
}

// lookThrough looks at slices one by one, the pairs in turn, until its time is spent or all were looked at.
func (q *Queue) lookThrough(ctx context.Context, heavy []*pair, cost time.Duration, out *Swept) error {
	until := time.Now().Add(min(max(cost/sweepCalls, sweepBudget), sweepMost))
	for len(heavy) > 0 && time.Now().Before(until) {
		q.sweeper.turn++
		i := q.sweeper.turn % len(heavy)
		if _, err := q.lookAt(ctx, heavy[i:i+1], out); err != nil {
			return err
		}
		if q.passedAll(heavy[i]) {
			heavy = append(heavy[:i:i], heavy[i+1:]...)
		}
	}
	return nil
}

// passedAll reports that the pair's pass has come to its end.
func (q *Queue) passedAll(p *pair) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.strip.next == 0 && p.strip.within == bottom
}

// lookAt looks at the next slice of each pair, in one statement, and does what has to be done with what it finds. late: the
// statement was cut off; the next look is at less.
func (q *Queue) lookAt(ctx context.Context, pairs []*pair, out *Swept) (late bool, err error) {
	cuts, most := q.cut(pairs)
	if len(cuts) == 0 {
		return false, nil
	}
	start := time.Now()
	err = q.s.look(ctx, most, cuts, q.refused.ids())
	if cutOff(err) {
		q.late(cuts, time.Since(start))
		return true, nil
	}
	if err != nil {
		return false, err
	}
	out.Due += q.found(cuts, time.Since(start))
	return false, q.reap(ctx, cuts, out)
}

func (q *Queue) cut(pairs []*pair) (cuts []*slice, most time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	most = sliceMost
	for _, p := range pairs {
		to := p.floor
		if now.Sub(p.asked) > idle {
			to = pointAt(now)
		}
		if from, to, ok := p.strip.cut(to); ok {
			cuts = append(cuts, &slice{pair: p, from: from, to: to, lacking: p.lacking, steep: p.keyless && now.Before(q.kinds[p.Kind].keys.steep)})
			if len(pairs) == 1 {
				most = p.strip.most()
			}
		}
	}
	return cuts, most
}

// look reads what lies in the slices, without these rows.
func (s *Store) look(ctx context.Context, most time.Duration, cuts []*slice, without []int64) error {
	n := len(cuts)
	kinds, priorities, lacking := make([]string, n), make([]int16, n), make([]string, n)
	keyless, steep := make([]bool, n), make([]bool, n)
	fromAt, toAt := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
	fromID, toID := make([]int64, n), make([]int64, n)
	for i, c := range cuts {
		kinds[i], priorities[i], lacking[i], keyless[i], steep[i] = c.Kind, c.Priority, c.lacking, c.keyless, c.steep
		fromAt[i], fromID[i], toAt[i], toID[i] = c.from.timestamp(), c.from.id, c.to.timestamp(), c.to.id
	}
	args := []any{kinds, priorities, fromAt, fromID, toAt, toID, lacking, keyless, steep, int32(sliceRows), without}
	return s.readWithin(ctx, most, s.sql.sweep, args, func(rows pgx.Rows) error {
		for rows.Next() {
			var ord int
			var c slice
			var last *int64
			var lastAt, dueAt, dueLast pgtype.Timestamptz
			if err := rows.Scan(&ord, &c.rows, &lastAt, &last, &c.due, &dueAt, &dueLast, &c.expired, &c.ids, &c.keys); err != nil {
				return err
			}
			to := cuts[ord-1]
			to.rows, to.due, to.expired, to.ids, to.keys = c.rows, c.due, c.expired, c.ids, c.keys
			to.dueAt, to.dueLast = pointOf(dueAt, bottom.id), pointOf(dueLast, bottom.id)
			if last != nil {
				to.last = pointOf(lastAt, *last)
			}
		}
		return rows.Err()
	})
}

// found moves the strips on, and lets claims look at what is due below the floors. Where they got nothing from that just
// now, it isn't offered again at once.
func (q *Queue) found(cuts []*slice, took time.Duration) (due int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, c := range cuts {
		c.strip.suspect = len(cuts) > 1 && took > sliceHeavy
		c.strip.passed(c.rows, c.last, took/time.Duration(len(cuts)))
		if c.keyless {
			due += q.kinds[c.Kind].keys.found(c, now, q.s.opt.BatchSize)
			continue
		}
		if c.due > 0 && c.dueAt.less(c.floor) && now.Sub(c.fruitless) > fruitlessRest && c.reopen(c.dueAt, c.dueLast) {
			due += c.due
		}
	}
	return due
}

// late cuts a slice that took too long; of several nobody knows which it was.
func (q *Queue) late(cuts []*slice, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range cuts {
		if len(cuts) > 1 {
			c.strip.suspect = true
		} else {
			c.strip.late(took)
		}
	}
}
