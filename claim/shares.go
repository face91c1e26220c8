package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Share is a kind's row in relay_kinds: the one truth about which part of it relays own.
type Share struct {
	Kind      string
	Percent   int // 0 to 100
	ChangedAt time.Time
}

// Shares returns the rows of all kinds.
func (s *Store) Shares(ctx context.Context) (shares []Share, err error) {
	err = s.read(ctx, s.sql.kindRows, nil, func(rows pgx.Rows) (err error) {
		shares, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Share])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shares of kinds: %w", err)
	}
	return shares, nil
}

// Switch is what became of a changed share.
type Switch struct {
	Was   int   // the share before; Percent when New
	New   bool  // the kind had no row
	Older []int // processes whose transactions, begun before the change, may still claim by the old share
}

// claimsEnd is how long SetShare waits for claims that began before the change. They take milliseconds; what lasts longer
// is somebody's transaction around more than a claim.
const claimsEnd = 3 * time.Second

// SetShare gives relays percent (0 to 100) of a kind, which may be one that has no jobs yet. It returns once the claims
// that had begun before have ended: from then on nothing is claimed by the share of before, unless Older names who may.
// Nobody is served twice or left out meanwhile: a claim goes by one share as a whole, and what it takes is locked.
func (s *Store) SetShare(ctx context.Context, kind string, percent int) (Switch, error) {
	sw := Switch{Was: percent}
	err := s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.settleSettings, s.timeout(), "on")
		b.Queue(s.sql.register, []string{kind}, []int16{int16(percent)}).Query(func(rows pgx.Rows) error {
			rows.Close()
			sw.New = rows.CommandTag().RowsAffected() > 0
			return rows.Err()
		})
		b.Queue(s.sql.shareLock, kind).QueryRow(func(row pgx.Row) error { return row.Scan(&sw.Was) })
		b.Queue(s.sql.shareSet, kind, int16(percent))
	})
	if err != nil {
		return Switch{}, fmt.Errorf("set the share of %q: %w", kind, err)
	}
	if sw.Older, err = s.awaitClaims(ctx); err != nil {
		return sw, fmt.Errorf("the share of %q is %d now; wait for claims that began before: %w", kind, percent, err)
	}
	return sw, nil
}

// awaitClaims waits until the transactions that work on the table now have ended, for a bounded time, and returns the
// processes whose haven't.
func (s *Store) awaitClaims(ctx context.Context) ([]int, error) {
	until := time.Now().Add(claimsEnd)
	pids, open, err := s.claims(ctx, nil)
	for err == nil && len(open) > 0 && time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return pids, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		pids, open, err = s.claims(ctx, open)
	}
	return pids, err
}

// claims lists who works on the table; of the transactions in among only, unless it is nil.
func (s *Store) claims(ctx context.Context, among []string) (pids []int, open []string, err error) {
	err = s.read(ctx, s.sql.shareClaims, []any{s.sql.table, among}, func(rows pgx.Rows) error {
		var pid int
		var transaction string
		_, err := pgx.ForEachRow(rows, []any{&pid, &transaction}, func() error {
			pids, open = append(pids, pid), append(open, transaction)
			return nil
		})
		return err
	})
	slices.Sort(pids)
	return pids, open, err
}
