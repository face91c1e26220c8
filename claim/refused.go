package claim

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// A row that was refused is left out for refusedFirst, and twice as long each time that it is refused again.
	refusedFirst   = time.Minute
	refusedLongest = time.Hour
	// refusedAtOnce bounds how many rows one search names, refusedMost how many are remembered.
	refusedAtOnce = 16
	refusedMost   = 10_000
	// searchMost bounds how long one claim goes on while it finds nothing but rows that are refused.
	searchMost = 2 * time.Second
)

// errManyRefused ends a search that has named refusedAtOnce rows.
var errManyRefused = errors.New("enough rows were refused")

// halve runs try on the items. When Postgres refuses one of their rows, the halves are tried on their own, down to that
// one item, which refused is told: the others must not wait for it. Any other error ends it, as does one of refused.
func halve[T any](items []T, try func([]T) error, refused func(T, error) error) error {
	switch err := try(items); {
	case err == nil || !refusesRow(err):
		return err
	case len(items) == 1:
		return refused(items[0], err)
	}
	half := len(items) / 2
	if err := halve(items[:half], try, refused); err != nil {
		return err
	}
	return halve(items[half:], try, refused)
}

// refusesRow reports an error that comes from the data of some row: somebody's constraint or trigger, or a value that
// can't be read. Where names the function in which an error was raised, and only rows call functions of others.
func refusesRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "27", "38", "39", "44", "54", "P0", "XX":
		return true
	}
	return pg.Code == outOfMemory || pg.Where != "" && !passes(err)
}

// outOfMemory passes, unless it comes from a row that is too large.
const outOfMemory = "53200"

// refusals are the rows that were refused, and the kinds of which too many were. Its methods may be called at once.
type refusals struct {
	mu    sync.Mutex
	rows  map[int64]refusal
	kinds map[string]time.Time // left out until then
}

type refusal struct {
	until time.Time
	wait  time.Duration
}

// ids are the rows to leave out, nil for none: then the statements are planned without the condition.
func (r *refusals) ids() (ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for id, row := range r.rows {
		if now.Before(row.until) {
			ids = append(ids, id)
		}
	}
	return ids
}

// rests says whether all of a kind is left out.
func (r *refusals) rests(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.kinds[kind])
}

// add notes rows; it says which are new, and for how long all of them are left out. full: there is no room for more.
func (r *refusals) add(ids []int64) (added []int64, wait time.Duration, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	// What hasn't been refused again for long is no longer known.
	maps.DeleteFunc(r.rows, func(_ int64, row refusal) bool { return now.Sub(row.until) > refusedLongest })
	if r.rows == nil {
		r.rows = map[int64]refusal{}
	}
	for _, id := range ids {
		row, known := r.rows[id]
		switch {
		case known:
			row.wait = min(2*row.wait, refusedLongest)
		case len(r.rows) >= refusedMost:
			full = true
			continue
		default:
			row.wait = refusedFirst
			added = append(added, id)
		}
		row.until = now.Add(row.wait)
		r.rows[id] = row
		wait = max(wait, row.wait)
	}
	return added, wait, full
}

// rest leaves out a kind, for a while.
func (r *refusals) rest(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[string]time.Time{}
	}
	r.kinds[kind] = time.Now().Add(refusedFirst)
}

// without runs try on the rows. Those that are refused are left out of what comes next, for a while, and the others are
// done. It returns how many were refused; full says that they can't all be remembered.
func (q *Queue) without(ids []int64, try func([]int64) error) (refused int, full bool, err error) {
	var bad []int64
	var cause error
	err = halve(ids, try, func(id int64, err error) error {
		bad, cause = append(bad, id), err
		if len(bad) == refusedAtOnce {
			return errManyRefused
		}
		return nil
	})
	if errors.Is(err, errManyRefused) {
		err = nil
	}
	if len(bad) == 0 {
		return 0, false, err
	}
	added, wait, full := q.refused.add(bad)
	if len(added) > 0 {
		q.s.opt.Log.Warn("the database refuses rows; they are left out", "job_ids", added, "for", wait, "error", cause)
	}
	return len(bad), full, err
}

// sift makes a claim of some branches. When it is refused because of a row it is made of fewer branches, and of the one
// that has the row of fewer jobs, so that all others are claimed. take makes a claim, of only these ids unless nil, within
// the room; next lists what a claim of a branch would take.
func sift[B any](q *Queue, branches []B, kind func(B) string, take func(part []B, only []int64, r room) ([]Lease, error), next func(B) ([]int64, error)) (leases []Lease, refused int, err error) {
	start := time.Now()
	try := func(part []B, only []int64) error {
		r := q.s.room(leases)
		if len(leases) > 0 && (r.rows <= 0 || r.bytes <= 0 || time.Since(start) > q.s.opt.Lease/4) {
			return nil // what was claimed mustn't wait for long
		}
		got, err := take(part, only, r)
		if len(leases) == 0 {
			leases = got
		} else {
			leases = append(leases, got...)
		}
		return err
	}
	err = halve(branches, func(part []B) error { return try(part, nil) }, func(b B, _ error) error {
		ids, err := next(b)
		if err != nil || len(ids) == 0 {
			return err
		}
		n, full, err := q.without(ids, func(some []int64) error { return try([]B{b}, some) })
		refused += n
		if full {
			q.s.opt.Log.Warn("the database refuses too many rows of a kind; all of it is left out", "kind", kind(b), "for", refusedFirst)
			q.refused.rest(kind(b))
		}
		return err
	})
	if len(leases) > 0 {
		err = nil
	}
	return leases, refused, err
}

// room is what a claim may still take.
type room struct {
	rows  int
	bytes int64
}

func (s *Store) room(leases []Lease) room {
	r := room{s.opt.BatchSize - len(leases), s.opt.BatchBytes}
	for i := range leases {
		r.bytes -= int64(leases[i].Size())
	}
	return r
}
