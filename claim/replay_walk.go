package claim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// gatherMost bounds the jobs that are held at once, 24 bytes each.
	gatherMost = 1_000_000
	// A slice looks at so many rows: fewer when the last one took longer than walkSlow (its rows come from the disk), more
	// when it was quick, up to walkRows; up to walkRowsMost when many jobs finished at one instant.
	walkRowsLeast = 500
	walkRows      = 10_000
	walkRowsMost  = 40_000
	walkSlow      = 200 * time.Millisecond
	walkQuick     = 50 * time.Millisecond
	// batchBytes bounds the stored bytes of one batch of copies; at least one job is copied.
	batchBytes = 4 << 20
)

// found is a job that was chosen.
type found struct {
	id, at int64 // at: when it finished, in microseconds of the Unix epoch
	size   int32 // stored bytes of its content; passedOver for one that the destination has had
	kind   int32 // in the walk's kinds
}

const passedOver = -1

// replayWalk yields the chosen jobs in the order of id, in statements that look at a bounded number of rows.
//
// The index on finished jobs knows kind and time, but not the order of id. So first the ids are gathered along it and
// sorted here: that costs what the chosen kinds and times hold, however large the table is. When they are more than
// gatherMost, or so many finished at one instant that no slice gets past it, the walk goes along the primary key
// instead, past everything else in the table.
type replayWalk struct {
	s        *Store
	filter   ReplayFilter
	again    bool
	most     int   // to gather
	rows     int   // of the next slice
	position int64 // of the next look along the primary key

	found   []found // in order
	end     bool    // there is no more than what is found
	total   int64   // to copy from the beginning on; 0 when that isn't known
	had     int64   // passed over so far
	unknown int64   // ids given that are no done jobs of the filter
	kinds   []string
	number  map[string]int32
	mark    mark
}

// mark is where the last batch began.
type mark struct {
	found []found
	had   int64
}

// begin gathers, or finds out that it can't.
func (w *replayWalk) begin(ctx context.Context) error {
	w.clear()
	w.rows = 4 * walkRowsLeast
	if len(w.filter.IDs) > 0 {
		return w.named(ctx)
	}
	all, err := w.gather(ctx)
	switch {
	case err != nil:
		return err
	case all:
		w.gathered()
	default:
		w.clear()
	}
	return nil
}

func (w *replayWalk) clear() {
	w.found, w.kinds, w.number = nil, nil, map[string]int32{}
}

// gathered puts what was found in order: there is no more.
func (w *replayWalk) gathered() {
	slices.SortFunc(w.found, func(a, b found) int { return cmp.Compare(a.id, b.id) })
	w.end = true
	for _, f := range w.found {
		if f.size != passedOver {
			w.total++
		}
	}
}

// missed is the destination that must not have had a job, or "".
func (w *replayWalk) missed() string {
	if w.again {
		return ""
	}
	return w.filter.Destination
}

// named finds jobs by id.
func (w *replayWalk) named(ctx context.Context) error {
	ids := slices.DeleteFunc(slices.Clone(w.filter.IDs), func(id int64) bool { return id <= w.position })
	for some := range slices.Chunk(ids, walkRowsLeast) {
		args := []any{some, w.filter.Kind, w.filter.since(), w.filter.until(), w.filter.Key, w.missed()}
		if _, err := w.look(ctx, w.s.sql.replay.byID, args, 0); err != nil {
			return err
		}
	}
	w.unknown = int64(len(ids) - len(w.found))
	w.gathered()
	return nil
}

// gather walks the finished jobs of each kind; false when they are too many.
func (w *replayWalk) gather(ctx context.Context) (all bool, err error) {
	kinds := []string{w.filter.Kind}
	if w.filter.Kind == "" {
		if kinds, err = w.s.finishedKinds(ctx); err != nil {
			return false, err
		}
	}
	for _, kind := range kinds {
		if all, err := w.gatherKind(ctx, kind); !all || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (w *replayWalk) gatherKind(ctx context.Context, kind string) (all bool, err error) {
	from, most := w.filter.since(), w.rows
	for {
		args := []any{kind, from, w.filter.until(), int32(most), w.position, w.filter.Key, w.missed()}
		l, err := w.look(ctx, w.s.sql.replay.finished, args, most)
		full := l.rows == most
		switch {
		case err != nil:
			return false, err
		case !full:
			return true, nil
		case len(w.found) > w.most:
			return false, nil
		case !l.first.Time.Equal(l.last.Time):
			from, most = l.last, w.rows
		case most == walkRowsMost:
			return false, nil
		default:
			most = min(2*most, walkRowsMost)
		}
	}
}

// looked is what a slice went past.
type looked struct {
	rows        int
	first, last pgtype.Timestamptz
	lastID      int64
}

// look reads one slice. Of a full one, of most rows, the last instant is left for the next, which begins with it; 0:
// nothing is left.
func (w *replayWalk) look(ctx context.Context, sql string, args []any, most int) (l looked, err error) {
	defer w.timed(time.Now())
	before := len(w.found)
	err = w.s.patiently(ctx, sql, args, func(rows pgx.Rows) error {
		w.found = w.found[:before]
		var id *int64
		var size *int32
		var kind *string
		var at pgtype.Timestamptz
		var had *bool
		_, err := pgx.ForEachRow(rows, []any{&l.rows, &l.first, &l.last, &l.lastID, &id, &kind, &at, &size, &had}, func() error {
			if id == nil || most > 0 && l.rows == most && !at.Time.Before(l.last.Time) {
				return nil
			}
			if *had {
				*size = passedOver
			}
			w.found = append(w.found, found{*id, at.Time.UnixMicro(), *size, w.numberOf(*kind)})
			return nil
		})
		return err
	})
	return l, err
}

// timed makes the next slice as wide as the last one was quick.
func (w *replayWalk) timed(start time.Time) {
	switch took := time.Since(start); {
	case took > walkSlow:
		w.rows = max(w.rows/2, walkRowsLeast)
	case took < walkQuick:
		w.rows = min(2*w.rows, walkRows)
	}
}

func (w *replayWalk) numberOf(kind string) int32 {
	n, ok := w.number[kind]
	if !ok {
		n = int32(len(w.kinds))
		w.kinds, w.number[kind] = append(w.kinds, kind), n
	}
	return n
}

// next returns up to n jobs to copy; none at the end. passed is told of each job that it goes past, may be nil.
func (w *replayWalk) next(ctx context.Context, n int, passed func(found)) (batch []found, err error) {
	for len(batch) == 0 && n > 0 {
		if len(w.found) == 0 {
			if w.end {
				break
			}
			if err := w.further(ctx); err != nil {
				return nil, err
			}
		}
		w.mark = mark{w.found, w.had}
		batch = w.take(n, passed)
	}
	return batch, nil
}

// take cuts a batch off what is found.
func (w *replayWalk) take(n int, passed func(found)) (batch []found) {
	for bytes := int64(0); len(w.found) > 0 && len(batch) < n; w.found = w.found[1:] {
		f := w.found[0]
		if bytes += int64(max(f.size, 0)); len(batch) > 0 && bytes > batchBytes {
			break
		}
		if passed != nil {
			passed(f)
		}
		if f.size == passedOver {
			w.had++
			continue
		}
		batch = append(batch, f)
	}
	return batch
}

// further looks at the next slice along the primary key.
func (w *replayWalk) further(ctx context.Context) error {
	most := w.rows
	args := []any{w.position, int32(most), w.filter.Kind, w.filter.since(), w.filter.until(), w.filter.Key, w.missed()}
	l, err := w.look(ctx, w.s.sql.replay.slice, args, 0)
	if err != nil {
		return err
	}
	slices.SortFunc(w.found, func(a, b found) int { return cmp.Compare(a.id, b.id) })
	w.end = l.rows < most
	w.position = max(w.position, l.lastID)
	return nil
}

// backTo takes the last batch back, but for what lies up to position: another process has copied that.
func (w *replayWalk) backTo(position int64) {
	w.found, w.had = w.mark.found, w.mark.had
	i, _ := slices.BinarySearchFunc(w.found, position+1, func(f found, id int64) int { return cmp.Compare(f.id, id) })
	w.found = w.found[i:]
	w.position = max(w.position, position)
}

// known are the kinds with jobs to copy, as far as they were found.
func (w *replayWalk) known() []string { return w.kindsOf(w.found) }

func (w *replayWalk) kindsOf(jobs []found) []string {
	met, kinds := make([]bool, len(w.kinds)), []string{}
	for _, f := range jobs {
		if f.size != passedOver && !met[f.kind] {
			met[f.kind] = true
			kinds = append(kinds, w.kinds[f.kind])
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (f ReplayFilter) since() pgtype.Timestamptz {
	if f.Since.Time.IsZero() {
		return bottom.timestamp()
	}
	return pgtype.Timestamptz{Time: f.Since.Time, Valid: true}
}

func (f ReplayFilter) until() pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: f.Until.Time, Valid: true}
}
