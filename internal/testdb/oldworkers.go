package testdb

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements of the well-known design, as its workers have them. Beside a relay its claim also
// says "AND NOT relay_owns(kind, key, id)".
const (
	oldInsert = `INSERT INTO jobs (kind, payload) VALUES ($1, '{"old": true}')`

	oldClaim = `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '30 seconds'
WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() AND kind = $1
    ORDER BY run_at, id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING id, attempts, payload`

	oldComplete = `UPDATE jobs SET status = 'done', leased_until = NULL WHERE id = $1 AND status = 'running' AND attempts = $2`

	oldRetry = `UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END,
    run_at = now() + interval '10 milliseconds' * attempts, leased_until = NULL, last_error = $3
WHERE id = $1 AND status = 'running' AND attempts = $2`

	oldReap = `UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END,
    leased_until = NULL, last_error = 'lease expired'
WHERE id IN (SELECT id FROM jobs WHERE status = 'running' AND leased_until < now()
    ORDER BY leased_until LIMIT 100 FOR UPDATE SKIP LOCKED)`
)

// Workers are old-style workers at work. Stop ends them; what they saw is valid after it.
type Workers struct {
	LongestWait time.Duration // of one statement
	LongestSQL  string        // which one it was
	Errors      []error
	Done        int // jobs completed
	Retried     int
	Reaped      int64
	Inserted    int
	Touched     []int64 // ids of the jobs that they claimed, with repetitions

	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
}

// OldWorkers starts n workers that insert, claim, and complete or retry jobs of LegacyKind, and one reaper, each on a
// connection of its own. They stop at the test's end at the latest.
func OldWorkers(t testing.TB, db *DB, n int) *Workers {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &Workers{cancel: cancel}
	t.Cleanup(w.Stop)
	for range n {
		w.start(ctx, t, db, w.work)
	}
	w.start(ctx, t, db, w.reap)
	return w
}

// Stop lets every worker end its statement, and waits.
func (w *Workers) Stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *Workers) start(ctx context.Context, t testing.TB, db *DB, turn func(*pgx.Conn) error) {
	t.Helper()
	conn, err := pgx.ConnectConfig(ctx, db.Config)
	if err != nil {
		t.Fatalf("connect an old worker: %v", err)
	}
	w.wg.Go(func() {
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			if err := turn(conn); err != nil {
				w.mu.Lock()
				w.Errors = append(w.Errors, err)
				w.mu.Unlock()
			}
			pause(ctx, time.Duration(2+rand.N(6))*time.Millisecond)
		}
	})
}

// work is one turn of a worker. Statements run without the workers' context: Stop lets them end.
func (w *Workers) work(conn *pgx.Conn) error {
	if _, err := w.exec(conn, oldInsert, LegacyKind); err != nil {
		return err
	}
	var id int64
	var attempts int
	var payload []byte
	err := w.timed(oldClaim, func(ctx context.Context) error {
		return conn.QueryRow(ctx, oldClaim, LegacyKind).Scan(&id, &attempts, &payload)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		w.count(func() { w.Inserted++ })
		return nil
	}
	if err != nil {
		return err
	}
	w.count(func() { w.Inserted++; w.Touched = append(w.Touched, id) })
	if rand.N(4) == 0 {
		_, err = w.exec(conn, oldRetry, id, attempts, "try later")
		w.count(func() { w.Retried++ })
		return err
	}
	n, err := w.exec(conn, oldComplete, id, attempts)
	w.count(func() { w.Done += int(n) })
	return err
}

func (w *Workers) reap(conn *pgx.Conn) error {
	n, err := w.exec(conn, oldReap)
	w.count(func() { w.Reaped += n })
	return err
}

func (w *Workers) exec(conn *pgx.Conn, sql string, args ...any) (int64, error) {
	var n int64
	err := w.timed(sql, func(ctx context.Context) error {
		tag, err := conn.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// timed bounds a statement, so that one that hangs is an error and not a test that never ends.
func (w *Workers) timed(sql string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	err := fn(ctx)
	took := time.Since(start)
	w.count(func() {
		if took > w.LongestWait {
			w.LongestWait, w.LongestSQL = took, short(sql)
		}
	})
	return err
}

func (w *Workers) count(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// Counts returns a few figures while the workers run.
func (w *Workers) Counts() (done, retried, inserted int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Done, w.Retried, w.Inserted
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
