package claim

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// point is a place in the order (run_at, id) of the pending index. The time is in microseconds of the Unix epoch, the
// database's precision; bottom lies below everything, top above.
type point struct{ at, id int64 }

var (
	bottom = point{math.MinInt64, math.MinInt64}
	top    = point{math.MaxInt64, math.MaxInt64}
)

// oldest is the first moment that is sent as a time; what is older counts as -infinity.
var oldest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func pointAt(t time.Time) point { return point{t.UnixMicro(), 0} }

// before is the point just below a job, so that a walk above it meets the job first.
func before(runAt time.Time, id int64) point { return point{runAt.UnixMicro(), id - 1} }

func (p point) less(q point) bool { return p.at < q.at || p.at == q.at && p.id < q.id }

func lower(p, q point) point {
	if q.less(p) {
		return q
	}
	return p
}

func (p point) back(d time.Duration) point { return point{p.at - d.Microseconds(), 0} }

func (p point) timestamp() pgtype.Timestamptz {
	if p.at < oldest {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: time.UnixMicro(p.at).UTC(), Valid: true}
}

// moment is p's time as an upper bound.
func (p point) moment() pgtype.Timestamptz {
	switch {
	case p == top:
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	case p.at < oldest:
		p.at = oldest
	}
	return pgtype.Timestamptz{Time: time.UnixMicro(p.at).UTC(), Valid: true}
}

// pointOf reads a place from the database; without a time it is bottom.
func pointOf(t pgtype.Timestamptz, id int64) point {
	if !t.Valid || t.InfinityModifier == pgtype.NegativeInfinity {
		return bottom
	}
	return point{t.Time.UnixMicro(), id}
}
