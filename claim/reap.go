package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// reapRows is how many expired leases one transaction ends.
const reapRows = 1000

// reap ends the expired leases of the slices.
func (q *Queue) reap(ctx context.Context, cuts []*slice, out *Swept) error {
	for _, c := range cuts {
		for ids := range slices.Chunk(c.expired, reapRows) {
			if err := q.without(ids, func(some []int64) error { return q.reapSome(ctx, some, out) }); err != nil {
				return fmt.Errorf("reap: %w", err)
			}
		}
	}
	return nil
}

// reapSome ends these leases if they are still over, and lets claims look at the jobs that are ready again.
func (q *Queue) reapSome(ctx context.Context, ids []int64, out *Swept) error {
	type ended struct {
		at    Pair
		runAt pgtype.Timestamptz
		id    int64
		dead  bool
	}
	var all []ended
	err := q.s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(q.s.sql.settleSettings, q.s.timeout(), "on")
		b.Queue(q.s.sql.reap, ids).Query(func(rows pgx.Rows) error {
			var e ended
			_, err := pgx.ForEachRow(rows, []any{&e.at.Kind, &e.at.Priority, &e.runAt, &e.id, &e.dead}, func() error {
				all = append(all, e)
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
	for _, e := range all {
		out.Reaped[e.at.Kind]++
		if e.dead {
			out.Dead[e.at.Kind]++
		} else if p := q.find(e.at); p != nil {
			p.reopen(pointOf(e.runAt, e.id-1), pointOf(e.runAt, e.id))
		}
	}
	return nil
}
