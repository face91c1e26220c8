package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Figures is what status, metrics and the page show. Counts per kind stop at CountLimit.
type Figures struct {
	At             time.Time
	DeadTuples     int64
	OldestSnapshot *Snapshot
	Kinds          []KindFigures // sorted by kind
}

// Snapshot is the oldest open snapshot of the database that keeps vacuum from cleaning up.
type Snapshot struct {
	PID         int     `json:"pid"`         // 0: a prepared transaction, or a replication slot that nobody reads
	AgeSeconds  float64 `json:"age_seconds"` // 0 where Postgres doesn't tell
	State       string  `json:"state"`
	Application string  `json:"application"`

	xmin string
}

// String names the holder for an operator.
func (s Snapshot) String() string {
	out := s.State
	if s.PID != 0 {
		out = fmt.Sprintf("process %d, %s", s.PID, s.State)
	}
	if s.Application != "" {
		out += fmt.Sprintf(", %q", s.Application)
	}
	if s.AgeSeconds >= 1 {
		out += fmt.Sprintf(", for %v", time.Duration(s.AgeSeconds*float64(time.Second)).Round(time.Second))
	}
	return out
}

// KindFigures are the counts of one kind; Due are those of Ready whose time has come.
type KindFigures struct {
	Kind             string
	Ready, Due       int64
	Running, Dead    int64
	ClosedKeys       int64 // held by dead jobs, if the kind keeps an order; counted over its first closedLook dead jobs
	OldestDueSeconds float64
	Capped           bool // at least one count stopped at the limit
}

const (
	// CountLimit bounds how many rows per kind and status are counted.
	CountLimit = 100_000
	// glance is how many rows of each pair are counted in one statement for all; only pairs with more get one of their own.
	glance = 1000
	// closedLook is how many of a kind's closed keys are looked at.
	closedLook = 10_000
	// figuresBudget ends the counting of what has more than a glance shows.
	figuresBudget = 3 * time.Second
	// snapshotLeast is the age from which a snapshot is worth showing: every statement has one for a moment.
	snapshotLeast = 1.0
)

// Figures reads them with bounded work, in short statements, each a transaction of its own: it must not become the
// snapshot that it reports.
func (s *Store) Figures(ctx context.Context) (Figures, error) {
	f := Figures{At: time.Now()}
	c := counter{s: s, until: f.At.Add(figuresBudget), kinds: map[string]*KindFigures{}}
	for _, step := range []func(context.Context) error{
		c.pending,
		c.dead,
		c.closed,
		func(ctx context.Context) (err error) { f.DeadTuples, err = s.deadTuples(ctx); return err },
		func(ctx context.Context) (err error) { f.OldestSnapshot, err = s.oldestSnapshot(ctx); return err },
	} {
		if err := step(ctx); err != nil {
			return Figures{}, fmt.Errorf("figures: %w", err)
		}
	}
	if f.OldestSnapshot != nil && f.OldestSnapshot.PID != 0 && f.OldestSnapshot.AgeSeconds < snapshotLeast {
		f.OldestSnapshot = nil
	}
	for _, k := range c.kinds {
		f.Kinds = append(f.Kinds, *k)
	}
	slices.SortFunc(f.Kinds, func(a, b KindFigures) int { return cmp.Compare(a.Kind, b.Kind) })
	return f, nil
}

// counter gathers the counts of all kinds.
type counter struct {
	s     *Store
	until time.Time
	kinds map[string]*KindFigures
}

func (c *counter) kind(name string) *KindFigures {
	if c.kinds[name] == nil {
		c.kinds[name] = &KindFigures{Kind: name}
	}
	return c.kinds[name]
}

func (c *counter) pending(ctx context.Context) error {
	pairs, err := c.s.readPairs(ctx)
	if err != nil {
		return err
	}
	counts, err := c.s.count(ctx, pairs, glance)
	if err != nil {
		return err
	}
	for i, n := range counts {
		if n.rows == glance && time.Now().Before(c.until) {
			more, err := c.s.count(ctx, pairs[i:i+1], CountLimit)
			if err != nil {
				return err
			}
			n, n.capped = more[0], more[0].rows == CountLimit
		} else {
			n.capped = n.rows == glance
		}
		c.kind(pairs[i].Kind).add(n)
	}
	return nil
}

// counts are those of one pair.
type counts struct {
	rows, ready, due, running int
	oldest                    float64
	capped                    bool
}

func (k *KindFigures) add(n counts) {
	k.Ready = min(k.Ready+int64(n.ready), CountLimit)
	k.Due = min(k.Due+int64(n.due), CountLimit)
	k.Running = min(k.Running+int64(n.running), CountLimit)
	k.OldestDueSeconds = max(k.OldestDueSeconds, n.oldest)
	k.Capped = k.Capped || n.capped
}

func (s *Store) count(ctx context.Context, pairs []Pair, most int) ([]counts, error) {
	kinds, priorities := make([]string, len(pairs)), make([]int16, len(pairs))
	for i, p := range pairs {
		kinds[i], priorities[i] = p.Kind, p.Priority
	}
	out := make([]counts, len(pairs))
	err := s.read(ctx, s.sql.figures, []any{kinds, priorities, int32(most)}, func(rows pgx.Rows) error {
		var i int
		var n counts
		_, err := pgx.ForEachRow(rows, []any{&i, &n.rows, &n.ready, &n.due, &n.running, &n.oldest}, func() error {
			out[i-1] = n
			return nil
		})
		return err
	})
	return out, err
}

func (c *counter) dead(ctx context.Context) error {
	kinds, err := c.s.deadKinds(ctx)
	if err != nil {
		return err
	}
	var many []string
	if err := c.countDead(ctx, kinds, glance, func(kind string) { many = append(many, kind) }); err != nil {
		return err
	}
	for _, kind := range many {
		if time.Now().After(c.until) {
			c.kind(kind).Capped = true
			continue
		}
		if err := c.countDead(ctx, []string{kind}, CountLimit, func(kind string) { c.kind(kind).Capped = true }); err != nil {
			return err
		}
	}
	return nil
}

// countDead counts in each kind, and calls full for those that have as many rows as were counted.
func (c *counter) countDead(ctx context.Context, kinds []string, most int, full func(kind string)) error {
	return c.s.read(ctx, c.s.sql.figuresDead, []any{kinds, int32(most)}, func(rows pgx.Rows) error {
		var kind string
		var n, dead int
		_, err := pgx.ForEachRow(rows, []any{&kind, &n, &dead}, func() error {
			if n == most {
				full(kind)
			}
			if dead > 0 {
				c.kind(kind).Dead = int64(dead)
			}
			return nil
		})
		return err
	})
}

// closed counts the closed keys.
func (c *counter) closed(ctx context.Context) error {
	kinds, err := c.s.ClosedKinds(ctx)
	if err != nil || len(kinds) == 0 {
		return err
	}
	return c.s.read(ctx, c.s.sql.closedCount, []any{kinds, int32(closedLook)}, func(rows pgx.Rows) error {
		var kind string
		var looked, keys int
		_, err := pgx.ForEachRow(rows, []any{&kind, &looked, &keys}, func() error {
			if keys > 0 {
				k := c.kind(kind)
				k.ClosedKeys, k.Capped = int64(keys), k.Capped || looked == closedLook
			}
			return nil
		})
		return err
	})
}

func (s *Store) deadTuples(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, s.sql.deadTuples, []any{s.sql.table}, func(rows pgx.Rows) error {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		return err
	})
	return n, err
}

// oldestSnapshot returns nil when there is none.
func (s *Store) oldestSnapshot(ctx context.Context) (found *Snapshot, err error) {
	err = s.read(ctx, s.sql.snapshot, nil, func(rows pgx.Rows) error {
		for rows.Next() {
			found = &Snapshot{}
			if err := rows.Scan(&found.PID, &found.AgeSeconds, &found.State, &found.Application, &found.xmin); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return found, err
}
