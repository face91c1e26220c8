package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// longestWait is five times what a statement of an old worker may wait: the tests' machine is shared.
const longestWait = 5 * 200 * time.Millisecond

func TestAdoptWhileOldWorkersRun(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		adoptWhileOldWorkersRun(t, testdb.LegacyOn(t, server, 50_000))
	})
}

func TestAdoptAMillionRows(t *testing.T) {
	if os.Getenv("RELAY_TEST_LONG") == "" {
		return // `make test-long` sets it
	}
	onEach(t, func(t *testing.T, server string) {
		adoptWhileOldWorkersRun(t, testdb.LegacyOn(t, server, 1_000_000))
	})
}

// legacyRow is a row as old workers see it, but for the reason that a dead row lacked.
const legacyRow = `md5(concat_ws('|', id, kind, payload, status, run_at, attempts, max_attempts, leased_until,
    coalesce(last_error, CASE status WHEN 'dead' THEN 'no reason recorded' ELSE 'NULL' END)))`

func adoptWhileOldWorkersRun(t *testing.T, db *testdb.DB) {
	db.Exec(t, `CREATE TABLE before AS SELECT id, status, `+legacyRow+` AS row FROM jobs`)
	w := testdb.OldWorkers(t, db, 3)
	worked := func() bool { _, _, n := w.Counts(); return n >= 20 }
	waitFor(t, "old workers at work", worked)
	start := time.Now()
	db.Migrate(t, migrations.Options{})
	took := time.Since(start)
	_, _, n := w.Counts()
	waitFor(t, "old workers at work after it", func() bool { _, _, m := w.Counts(); return m >= n+20 })
	w.Stop()
	t.Logf("migrated in %s; old workers completed %d, retried %d, reaped %d, inserted %d; longest statement %s: %s",
		took, w.Done, w.Retried, w.Reaped, w.Inserted, w.LongestWait, w.LongestSQL)

	if len(w.Errors) > 0 {
		t.Errorf("old workers got %d errors, the first: %v", len(w.Errors), w.Errors[0])
	}
	if w.LongestWait > longestWait {
		t.Errorf("an old worker waited %s for %q, at most %s is allowed", w.LongestWait, w.LongestSQL, longestWait)
	}
	// What was done or dead nobody touches; what was ready or running only old workers, and only those they claimed or reaped.
	changed := `SELECT count(*) FROM before b LEFT JOIN jobs j USING (id)
WHERE (b.status IN ('done', 'dead') OR NOT b.id = ANY ($1) AND b.status <> 'running') AND b.row IS DISTINCT FROM ` + legacyRowOf("j")
	if got := testdb.One[int](t, db, changed, w.Touched); got != 0 {
		t.Errorf("rows that changed though no old worker touched them: got %d, want 0", got)
	}
	if got := testdb.One[int](t, db, unstamped); got != 0 {
		t.Errorf("rows whose finished_at or reason doesn't fit their status: got %d, want 0", got)
	}
	if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs j JOIN before b USING (id) WHERE created_at IS NOT NULL`); got != 0 {
		t.Errorf("old rows with a made-up created_at: got %d, want 0", got)
	}
	fresh := testdb.New(t)
	sameShape(t, without(shape(t, db), "jobs_status_check", "_ready_idx", "_running_idx", "column before"), shape(t, fresh))
	if err := migrations.Check(t.Context(), db.Pool, db.Table); err != nil {
		t.Errorf("check after adoption: %v", err)
	}
}

// unstamped counts the rows that the triggers would have stamped.
const unstamped = `SELECT count(*) FROM jobs WHERE (status IN ('done', 'dead')) <> (finished_at IS NOT NULL) OR status = 'dead' AND last_error IS NULL`

func legacyRowOf(alias string) string {
	return regexp.MustCompile(`\b(id|kind|payload|status|run_at|attempts|max_attempts|leased_until|last_error)\b`).ReplaceAllString(legacyRow, alias+".$1")
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// readsOn is a transaction that has read the table and stays open until the test ends it, or ends.
func readsOn(t *testing.T, db *testdb.DB) pgx.Tx {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM jobs`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A transaction that has read the table, and stays open, holds the migration up but none of the old workers: they wait for
// the migration's tries, each 100 ms at most.
func TestAdoptBehindAnOpenTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 2_000)
		w := testdb.OldWorkers(t, db, 2)
		reader := readsOn(t, db)
		pid := reader.Conn().PgConn().PID()

		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := migrations.Up(short, db.Config, migrations.Options{Table: db.Table})
		if !errors.Is(err, migrations.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("up behind an open transaction, with 3 s: got %v, want ErrBusy and its deadline", err)
		}
		wantErr(t, err, fmt.Sprintf("pid %d", pid), "columns")

		ended := make(chan error, 1)
		go func() { ended <- migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Table}) }()
		_, _, n := w.Counts()
		waitFor(t, "old workers at work", func() bool { _, _, m := w.Counts(); return m >= n+30 })
		select {
		case err := <-ended:
			t.Fatalf("up ended beside the open transaction: %v", err)
		default:
		}
		if err := reader.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("up after it: %v", err)
		}
		w.Stop()
		if len(w.Errors) > 0 || w.LongestWait > longestWait {
			t.Errorf("old workers: errors %v, longest wait %s for %q, at most %s is allowed", w.Errors, w.LongestWait, w.LongestSQL, longestWait)
		}
	})
}

// cutter ends a context in the middle of the first try after one that met a lock.
type cutter struct {
	cut context.CancelFunc
	met atomic.Bool
}

func (c *cutter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if c.met.Load() && strings.Contains(d.SQL, "ALTER TABLE") {
		c.cut()
	}
	return ctx
}

func (c *cutter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	var pg *pgconn.PgError
	if errors.As(d.Err, &pg) && pg.Code == "55P03" {
		c.met.Store(true)
	}
}

// Whoever holds the table is named whenever the caller's time is over, in a try as between two.
func TestCutInATrySaysWhoHoldsTheTable(t *testing.T) {
	t.Parallel()
	db := testdb.Legacy(t, 10)
	reader := readsOn(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := db.Config.Copy()
	cfg.Tracer = &cutter{cut: cancel}
	err := migrations.Up(ctx, cfg, migrations.Options{Table: db.Table})
	if !errors.Is(err, migrations.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("up, cut in a try behind an open transaction: got %v, want ErrBusy and the cancellation", err)
	}
	wantErr(t, err, fmt.Sprintf("pid %d", reader.Conn().PgConn().PID()), "columns")
}

// Dead rows that were never given a reason, or only have a time, are among the dead jobs as all others are.
func TestDeadRowsOfBefore(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 4_000)
		db.Exec(t, `ALTER TABLE jobs ADD finished_at timestamptz`)
		db.Exec(t, `UPDATE jobs SET finished_at = '2020-01-01Z' WHERE status = 'dead' AND id % 3 = 0`)
		want := `SELECT count(*) FROM jobs WHERE status = 'dead'`
		indexed := `SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL AND last_error IS NOT NULL AND status = 'dead'`
		kept := `SELECT count(*) FROM jobs WHERE finished_at = '2020-01-01Z' OR last_error = 'boom'`
		n := testdb.One[int](t, db, kept)
		db.Migrate(t, migrations.Options{})
		if got, want := testdb.One[int](t, db, indexed), testdb.One[int](t, db, want); got != want || want != 1000 {
			t.Errorf("dead jobs that their index holds: got %d, want %d", got, want)
		}
		if got := testdb.One[int](t, db, kept); got != n {
			t.Errorf("times and reasons that stayed: got %d, want %d", got, n)
		}
		if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status <> 'dead' AND last_error IS NOT NULL`); got != 0 {
			t.Errorf("others that were given a reason: %d", got)
		}
	})
}

// The backfill passes by a row that somebody holds, and comes back for it.
func TestBackfillComesBackForHeldRows(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 400)
		db.Migrate(t, options)
		downTo(t, db, 3)
		left := func() int { return testdb.One[int](t, db, unstamped) }
		db.Exec(t, `UPDATE jobs SET finished_at = NULL`)
		holder, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback(context.WithoutCancel(t.Context()))
		if _, err := holder.Exec(t.Context(), `SELECT FROM jobs WHERE id IN (2, 399) FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Table}) }()
		waitFor(t, "all rows but the two to be stamped", func() bool { return left() == 2 })
		if err := holder.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := left(); got != 0 {
			t.Errorf("rows left: got %d, want 0", got)
		}
		late := `SELECT count(*) FROM jobs WHERE finished_at IS DISTINCT FROM CASE WHEN status IN ('done', 'dead') THEN run_at END`
		if got := testdb.One[int](t, db, late); got != 0 {
			t.Errorf("rows whose estimate isn't their run_at: got %d, want 0", got)
		}
	})
}
