package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Changed counts what an operator's command did. Skipped are jobs that exist and were named or found, but aren't dead
// (any more), or don't match the filter.
type Changed struct{ Changed, Skipped, NotFound int64 }

// RequeueDead gives the dead jobs that match a full new round: attempts 0, due now, in batches. With dryRun it only
// counts. When ctx ends it returns what was done so far together with the error.
func (s *Store) RequeueDead(ctx context.Context, f Filter, dryRun bool) (Changed, error) {
	c, err := s.change(ctx, f, s.sql.requeue, dryRun)
	if err != nil {
		return c, fmt.Errorf("requeue dead jobs: %w", err)
	}
	return c, nil
}

// DiscardDead deletes the dead jobs that match, in batches, otherwise like RequeueDead.
func (s *Store) DiscardDead(ctx context.Context, f Filter, dryRun bool) (Changed, error) {
	c, err := s.change(ctx, f, s.sql.discard, dryRun)
	if err != nil {
		return c, fmt.Errorf("discard dead jobs: %w", err)
	}
	return c, nil
}

// change runs sql on the matching jobs, a page at a time, each page a durable transaction.
func (s *Store) change(ctx context.Context, f Filter, sql string, dryRun bool) (c Changed, err error) {
	ids := slices.Compact(slices.Sorted(slices.Values(f.IDs)))
	exist, err := s.exist(ctx, ids)
	if err != nil {
		return c, err
	}
	c.NotFound = int64(len(ids)) - exist
	left, speed := f.Limit, pace{rate: f.Rate}
	err = s.deadPages(ctx, f, func(page []DeadJob) error {
		if f.Limit > 0 {
			page = page[:min(len(page), left)]
			left -= len(page)
		}
		if err := s.changePage(ctx, sql, page, dryRun, &speed, &c); err != nil {
			return err
		}
		if f.Limit > 0 && left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if len(ids) > 0 && err == nil {
		c.Skipped = exist - c.Changed
	}
	return c, err
}

// exist counts which of the ids there are.
func (s *Store) exist(ctx context.Context, ids []int64) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = s.read(ctx, s.sql.exists, []any{ids}, func(rows pgx.Rows) (err error) {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		return err
	})
	return n, err
}

// changePage changes the jobs of a page, in batches of the rate's size.
func (s *Store) changePage(ctx context.Context, sql string, page []DeadJob, dryRun bool, speed *pace, c *Changed) error {
	for some := range slices.Chunk(page, speed.batch(deadRows)) {
		n := int64(len(some))
		if !dryRun {
			err := speed.wait(ctx, len(some))
			if err == nil {
				n, err = s.changeSome(ctx, sql, some)
			}
			if err != nil {
				return err
			}
		}
		c.Changed += n
		c.Skipped += int64(len(some)) - n
	}
	return nil
}

func (s *Store) changeSome(ctx context.Context, sql string, page []DeadJob) (n int64, err error) {
	ids := make([]int64, len(page))
	for i, d := range page {
		ids[i] = d.ID
	}
	err = s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.settleSettings, s.timeout(), "on")
		b.Queue(sql, ids).Query(func(rows pgx.Rows) error {
			rows.Close()
			n = rows.CommandTag().RowsAffected()
			return rows.Err()
		})
	})
	return n, err
}
