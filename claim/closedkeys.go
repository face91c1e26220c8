package claim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClosedKey is a key that a dead job holds, where its kind keeps the order of keys. A key held by several dead jobs is
// listed once for each.
type ClosedKey struct {
	Kind, Key   string
	Job         int64
	ClosedAt    time.Time
	Attempts    int
	MaxAttempts int
	LastError   string
	Waiting     int // unfinished jobs of the key; counting stops at WaitingLimit
}

// WaitingLimit is where the counting of what waits behind a closed key stops.
const WaitingLimit = 1000

// KeyFilter chooses closed keys; empty fields match everything.
type KeyFilter struct {
	Kinds  []string // nil: any
	Key    string
	HasKey bool // Key is meant, also when it is ""
	Limit  int  // 0: no limit
}

// ClosedKinds lists the kinds of which keys are closed, whether their routes keep an order or not.
func (s *Store) ClosedKinds(ctx context.Context) (kinds []string, err error) {
	err = s.read(ctx, s.sql.closedKinds, nil, func(rows pgx.Rows) (err error) {
		kinds, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list kinds of closed keys: %w", err)
	}
	return kinds, nil
}

// ListClosedKeys calls each for the closed keys that match, in the order of kind, key and job. An error that each
// returns ends it and is returned.
func (s *Store) ListClosedKeys(ctx context.Context, f KeyFilter, each func(ClosedKey) error) error {
	left := f.Limit
	last := ClosedKey{Job: math.MinInt64}
	for {
		page, err := s.closedKeys(ctx, f, last)
		if err != nil {
			return fmt.Errorf("list closed keys: %w", err)
		}
		for _, k := range page {
			if err := each(k); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
			last = k
		}
		if len(page) < deadRows {
			return nil
		}
	}
}

func (s *Store) closedKeys(ctx context.Context, f KeyFilter, above ClosedKey) (page []ClosedKey, err error) {
	var key *string
	if f.HasKey || f.Key != "" {
		key = &f.Key
	}
	args := []any{f.Kinds, key, above.Kind, above.Key, above.Job, int32(WaitingLimit), int32(deadRows)}
	err = s.read(ctx, s.sql.closedKeys, args, func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ClosedKey])
		return err
	})
	return page, err
}

// Reopening says what becomes of the dead jobs that hold a key.
type Reopening uint8

const (
	LeaveDead    Reopening = iota // they stay dead; what waits behind them goes on
	RequeueFirst                  // they get a full new round, before what waits
	DiscardDead                   // they are deleted
)

// ErrNotClosed says that no dead job holds the key.
var ErrNotClosed = errors.New("the key is not closed")

// ReopenKey lets a closed key go on, and returns how many dead jobs held it. It is one durable transaction for a thousand
// of them; the key opens with the last. With dryRun it only counts.
func (s *Store) ReopenKey(ctx context.Context, kind, key string, how Reopening, dryRun bool) (jobs int, err error) {
	above := ClosedKey{Kind: kind, Key: key, Job: math.MinInt64}
	for {
		page, err := s.closedKeys(ctx, KeyFilter{Kinds: []string{kind}, Key: key, HasKey: true}, above)
		if err == nil && !dryRun && len(page) > 0 {
			err = s.reopen(ctx, page, how)
		}
		if err != nil {
			return jobs, fmt.Errorf("reopen key: %w", err)
		}
		jobs += len(page)
		if len(page) < deadRows {
			break
		}
		above = page[len(page)-1]
	}
	if jobs == 0 {
		return 0, fmt.Errorf("reopen key: %w", ErrNotClosed)
	}
	return jobs, nil
}

func (s *Store) reopen(ctx context.Context, page []ClosedKey, how Reopening) error {
	ids := make([]int64, len(page))
	for i, k := range page {
		ids[i] = k.Job
	}
	return s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.settleSettings, s.timeout(), "on")
		switch how {
		case RequeueFirst:
			b.Queue(s.sql.requeue, ids)
		case DiscardDead:
			b.Queue(s.sql.discard, ids)
		default:
			b.Queue(s.sql.reopen, page[0].Kind, page[0].Key, ids)
		}
	})
}
