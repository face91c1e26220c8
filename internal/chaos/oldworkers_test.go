package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/history"
)

// The statements of the well-known design, with the one condition that workers beside a relay add to their claim.
const (
	oldClaim = `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '6 seconds'
WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() AND kind = 'shared' AND NOT relay_owns(kind, key, id)
            ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, attempts`
	oldComplete = `UPDATE jobs SET status = 'done', leased_until = NULL, last_error = NULL WHERE id = $1 AND attempts = $2 AND status = 'running'`
	oldReap     = `UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END, leased_until = NULL,
    last_error = 'lease expired'
WHERE id IN (SELECT id FROM jobs WHERE status = 'running' AND leased_until < now() ORDER BY leased_until LIMIT 100 FOR UPDATE SKIP LOCKED)`
)

// startOldWorkers starts two workers and a reaper that serve what relays don't own of the shared kind.
func (w *world) startOldWorkers() {
	pool := w.pool(history.Old, 3)
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			repeat(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) { return w.oldWork(ctx, pool) })
		})
	}
	all.Go(func() {
		repeat(ctx, time.Second, func(ctx context.Context) (bool, error) {
			_, err := pool.Exec(ctx, oldReap)
			return false, err
		})
	})
	w.stopOldWorkers = func() { cancel(); all.Wait() }
	w.t.Cleanup(w.stopOldWorkers)
}

// repeat takes turns until ctx ends, at once while there is more to do. Errors are the database's, which is disturbed.
func repeat(ctx context.Context, idle time.Duration, turn func(context.Context) (more bool, err error)) {
	for ctx.Err() == nil {
		limited, stop := context.WithTimeout(ctx, patience)
		more, err := turn(limited)
		stop()
		if err == nil && more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(idle):
		}
	}
}

func (w *world) oldWork(ctx context.Context, pool *pgxpool.Pool) (more bool, err error) {
	var id int64
	var attempts int
	switch err := pool.QueryRow(ctx, oldClaim).Scan(&id, &attempts); {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	w.mu.Lock()
	w.work = append(w.work, history.Work{Job: id, At: time.Now()})
	w.mu.Unlock()
	_, err = pool.Exec(ctx, oldComplete, id, attempts)
	return true, err
}
