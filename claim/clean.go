package claim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	cleanRows     = 1000
	cleanRowsMost = 64_000
)

// cleanUsual is for every day: a backlog doesn't keep its connection for long.
var cleanUsual = cleanTimes{budget: 5 * time.Second, again: 10 * time.Minute}

type cleanTimes struct {
	budget time.Duration // bounds one call
	again  time.Duration // how soon at the earliest a walk is made once more
}

// againFraction bounds how much of the time is spent on walking once more where all is known to stay.
const againFraction = 20

// cleaner remembers how far each walk has come: jobs that stay may be millions, and are looked at once.
type cleaner struct {
	ages  ages
	walks map[walkName]*cleanWalk
	first walkName  // where the next call begins
	keys  ClosedKey // up to where closed keys were looked at
}

// walkName is a walk over the finished jobs of a kind that removes those of one status. Done and dead ones have ages of
// their own, so one walk for both would meet the younger again and again until the elder's age.
type walkName struct{ kind, status string }

func (w walkName) compare(o walkName) int {
	return cmp.Or(cmp.Compare(w.kind, o.kind), cmp.Compare(w.status, o.status))
}

// cleanWalk has come up to front. What was locked then, or came late, is behind it: when it has time left it walks there
// once more.
type cleanWalk struct {
	front, again point
	spent        time.Duration // on again
	rest         time.Time     // no again before this
}

// Clean removes finished jobs of the served kinds that carry a token: done ones older than done, dead ones older than
// dead (0: keep for ever), in batches of 1,000, each a short transaction. A negative done keeps those as well; 0 removes
// them all. A dead job that holds its key stays, as the key's later jobs would go on. It returns how many went. One call
// works for a few seconds at most, divided among the kinds; what is left is the next one's. It also forgets closed keys,
// of any kind, whose job is gone.
func (q *Queue) Clean(ctx context.Context, done, dead time.Duration) (int64, error) {
	removed, err := q.clean(ctx, ages{done, dead}, cleanUsual)
	if err != nil {
		err = fmt.Errorf("clean: %w", err)
	}
	return removed, err
}

func (q *Queue) clean(ctx context.Context, a ages, t cleanTimes) (total int64, err error) {
	q.cleaning.Lock()
	defer q.cleaning.Unlock()
	if err := q.forgetKeys(ctx); err != nil {
		return 0, err
	}
	walks, err := q.cleanWalks(ctx, a)
	if err != nil {
		return 0, err
	}
	until := time.Now().Add(t.budget)
	for i, w := range walks {
		left := time.Until(until)
		if i > 0 && left <= 0 {
			q.cleaner.first = w
			break
		}
		n, err := q.cleanKind(ctx, w, t.again, time.Now().Add(left/time.Duration(len(walks)-i)))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// cleanWalks lists the walks, another one first each time.
func (q *Queue) cleanWalks(ctx context.Context, a ages) (walks []walkName, err error) {
	c := &q.cleaner
	if c.walks == nil || c.ages != a {
		c.ages, c.walks = a, map[walkName]*cleanWalk{}
	}
	if a.done < 0 && a.dead <= 0 {
		return nil, nil
	}
	kinds, err := q.finishedKinds(ctx)
	for _, kind := range kinds {
		if a.done >= 0 {
			walks = append(walks, walkName{kind, "done"})
		}
		if a.dead > 0 {
			walks = append(walks, walkName{kind, "dead"})
		}
	}
	if len(walks) == 0 {
		return nil, err
	}
	slices.SortFunc(walks, walkName.compare)
	first, _ := slices.BinarySearchFunc(walks, c.first, walkName.compare)
	first %= len(walks)
	c.first = walks[(first+1)%len(walks)]
	return append(walks[first:len(walks):len(walks)], walks[:first]...), err
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

// of gives the parameters of a walk: the age in microseconds of what it removes, nil for what it leaves.
func (a ages) of(w walkName) (done, dead *int64) {
	if w.status == "done" {
		us := a.done.Microseconds()
		return &us, nil
	}
	us := a.dead.Microseconds()
	return nil, &us
}

// cleanKind goes on with a walk, and once it is at its end with the one behind it.
func (q *Queue) cleanKind(ctx context.Context, name walkName, pause time.Duration, until time.Time) (int64, error) {
	w := q.cleaner.walks[name]
	if w == nil {
		w = &cleanWalk{front: bottom, again: bottom, rest: time.Now().Add(pause)}
		q.cleaner.walks[name] = w
	}
	total, ended, err := q.cleanFrom(ctx, name, &w.front, point{math.MaxInt64, 0}, until)
	if err != nil || !ended || time.Now().Before(w.rest) {
		return total, err
	}
	start := time.Now()
	n, ended, err := q.cleanFrom(ctx, name, &w.again, w.front, until)
	if w.spent += time.Since(start); ended {
		w.again, w.spent, w.rest = bottom, 0, time.Now().Add(max(pause, againFraction*w.spent))
	}
	return total + n, err
}

// cleanFrom walks from a place on, which it moves, until it has ended: at to, or where nothing is old enough.
func (q *Queue) cleanFrom(ctx context.Context, name walkName, from *point, to point, until time.Time) (total int64, ended bool, err error) {
	for most := int32(cleanRows); from.less(to); {
		c, err := q.cleanSlice(ctx, name, *from, most)
		total += int64(c.removed)
		if err != nil {
			return total, false, err
		}
		last := pointOf(c.last, 0)
		stuck := c.removed == 0 && !from.less(last)
		if from.less(last) {
			*from = last
		}
		if c.looked < int(most) {
			return total, true, nil
		}
		switch {
		case stuck && most < cleanRowsMost:
			most *= 4 // more jobs finished at one moment than fit in a slice
		case stuck:
			*from = point{max(from.at+1, oldest), 0}
		default:
			most = cleanRows
		}
		if time.Now().After(until) {
			return total, false, nil
		}
	}
	return total, true, nil
}

type cleaned struct {
	removed, looked int
	last            pgtype.Timestamptz
	ids             []int64
}

// cleanSlice removes what is old in the next slice of a walk, except rows that are refused.
func (q *Queue) cleanSlice(ctx context.Context, name walkName, from point, most int32) (cleaned, error) {
	done, dead := q.cleaner.ages.of(name)
	closes := q.orderOf(name.kind).Closes()
	run := func(a among, list bool) (c cleaned, err error) {
		err = q.s.transaction(ctx, func(b *pgx.Batch) {
			b.Queue(q.s.sql.claimSettings, q.s.timeout())
			b.Queue(q.s.sql.clean, name.kind, from.timestamp(), done, dead, most, a.ids, a.only, list, closes).QueryRow(func(row pgx.Row) error {
				return row.Scan(&c.removed, &c.looked, &c.last, &c.ids)
			})
		})
		return c, err
	}
	c, err := run(among{ids: q.refused.ids()}, false)
	if !refusesRow(err) {
		return c, err
	}
	if c, err = run(among{ids: q.refused.ids()}, true); err != nil {
		return c, err
	}
	err = q.without(c.ids, func(ids []int64) error {
		some, err := run(among{ids: ids, only: true}, false)
		c.removed += some.removed
		return err
	})
	return c, err
}

// forgetKeys removes a page of the closed keys whose job is gone.
func (q *Queue) forgetKeys(ctx context.Context) error {
	at, looked := q.cleaner.keys, 0
	if at.Job == 0 {
		at.Job = math.MinInt64
	}
	err := q.s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(q.s.sql.settleSettings, q.s.timeout(), "off")
		b.Queue(q.s.sql.closedSweep, at.Kind, at.Key, at.Job, int32(cleanRows)).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&at.Kind, &at.Key, &at.Job, &looked}, func() error { return nil })
			return err
		})
	})
	if err != nil {
		return err
	}
	if q.cleaner.keys = at; looked < cleanRows {
		q.cleaner.keys = ClosedKey{}
	}
	return nil
}
