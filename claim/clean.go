package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	cleanRows     = 1000
	cleanRowsMost = 64_000
	// cleanBudget bounds one call, so that a backlog doesn't keep its connection for long.
	cleanBudget = 5 * time.Second
	// cleanAnew is how often cleaning starts from the beginning: what was locked, or committed late, is behind it.
	cleanAnew = 10 * time.Minute
)

// cleaner remembers up to where each kind was cleaned: jobs that stay aren't looked at each time.
type cleaner struct {
	since time.Time
	ages  ages
	from  map[string]pgtype.Timestamptz
}

// Clean removes finished jobs of the served kinds that carry a token: done ones older than done, dead ones older than
// dead (0: keep for ever), in batches of 1,000, each a short transaction. A negative done keeps those as well; 0 removes
// them all. It returns how many went. One call works for a few seconds at most; what is left is the next one's.
func (q *Queue) Clean(ctx context.Context, done, dead time.Duration) (int64, error) {
	q.cleaning.Lock()
	defer q.cleaning.Unlock()
	if done < 0 && dead <= 0 {
		return 0, nil
	}
	a := ages{done, dead}
	if q.cleaner.ages != a || time.Since(q.cleaner.since) > cleanAnew {
		q.cleaner = cleaner{since: time.Now(), ages: a, from: map[string]pgtype.Timestamptz{}}
	}
	kinds, err := q.finishedKinds(ctx)
	if err != nil {
		return 0, fmt.Errorf("clean: %w", err)
	}
	var total int64
	until := time.Now().Add(cleanBudget)
	for _, kind := range kinds {
		n, err := q.cleanKind(ctx, kind, a, until)
		total += n
		if err != nil {
			return total, fmt.Errorf("clean: %w", err)
		}
	}
	return total, nil
}

func (q *Queue) finishedKinds(ctx context.Context) ([]string, error) {
	kinds, err := q.s.finishedKinds(ctx)
	return slices.DeleteFunc(kinds, func(kind string) bool { return !q.serves(kind) }), err
}

// finishedKinds are the kinds that have finished jobs.
func (s *Store) finishedKinds(ctx context.Context) (kinds []string, err error) {
	err = s.read(ctx, s.sql.cleanKinds, nil, func(rows pgx.Rows) (err error) {
		kinds, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return kinds, err
}

type ages struct{ done, dead time.Duration }

// args are the ages in microseconds; nil keeps the jobs.
func (a ages) args() (done, dead *int64) {
	if a.done >= 0 {
		us := a.done.Microseconds()
		done = &us
	}
	if a.dead > 0 {
		us := a.dead.Microseconds()
		dead = &us
	}
	return done, dead
}

// cleanKind walks the finished jobs of one kind.
func (q *Queue) cleanKind(ctx context.Context, kind string, a ages, until time.Time) (total int64, err error) {
	from, ok := q.cleaner.from[kind]
	if !ok {
		from = bottom.timestamp()
	}
	for most := int32(cleanRows); ; {
		c, err := q.s.cleanSlice(ctx, kind, from, a, most)
		total += int64(c.removed)
		if err != nil {
			return total, err
		}
		if c.last.Valid {
			// What is too young yet must be looked at again.
			q.cleaner.from[kind] = earlier(c.last, c.safe)
		}
		if c.looked < int(most) || time.Now().After(until) {
			return total, nil
		}
		switch stuck := c.removed == 0 && c.last == from; {
		case stuck && most < cleanRowsMost:
			most *= 4 // more jobs finished at one moment than fit in a slice
		case stuck:
			from.Time = from.Time.Add(time.Microsecond)
		default:
			from, most = c.last, cleanRows
		}
	}
}

type cleaned struct {
	removed, looked int
	last, safe      pgtype.Timestamptz
}

func (s *Store) cleanSlice(ctx context.Context, kind string, from pgtype.Timestamptz, a ages, most int32) (c cleaned, err error) {
	done, dead := a.args()
	err = s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claimSettings, s.timeout())
		b.Queue(s.sql.clean, kind, from, done, dead, most).QueryRow(func(row pgx.Row) error {
			return row.Scan(&c.removed, &c.looked, &c.last, &c.safe)
		})
	})
	return c, err
}

func earlier(a, b pgtype.Timestamptz) pgtype.Timestamptz {
	if b.Time.Before(a.Time) {
		return b
	}
	return a
}
