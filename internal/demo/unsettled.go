package demo

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed unsettled.sql
var unsettledSQL string

// Patience is how long after the last commit everything must have been delivered.
const Patience = 30 * time.Second

// Unsettled returns the jobs that some destination has not accepted.
func Unsettled(ctx context.Context, db *pgxpool.Pool) (map[int64]bool, error) {
	rows, err := db.Query(ctx, unsettledSQL)
	if err != nil {
		return nil, fmt.Errorf("asking which jobs are not done: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("asking which jobs are not done: %w", err)
	}
	open := map[int64]bool{}
	for _, id := range ids {
		open[id] = true
	}
	return open, nil
}

// Wait returns once every committed job has been delivered everywhere, when Patience is over, or when ctx ends.
func (l *Ledger) Wait(ctx context.Context, db *pgxpool.Pool) {
	for ctx.Err() == nil && time.Since(l.LastCommit()) < Patience {
		if p := l.Progress(); p.Delivered == p.Committed {
			if open, err := Unsettled(ctx, db); err == nil && len(open) == 0 {
				return
			}
		}
		pause(ctx, 20*time.Millisecond)
	}
}
