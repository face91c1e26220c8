package migrations_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// killer ends a migration after its nth statement that matters: the statement was run, but nobody hears of it, and every
// session is cut, as when the process is killed. Mere looks don't matter; of the statements in a transaction, which all
// end in its rollback, the first one and the commit do.
type killer struct {
	at int

	mu     sync.Mutex
	n      int
	sql    string // the nth statement
	inside int    // statements so far in the open transaction, with its begin
	dead   bool
}

type fatal struct{}

func (k *killer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		conn.PgConn().Conn().Close()
		return ctx
	}
	if looks(d.SQL) {
		return ctx
	}
	switch {
	case d.SQL == "commit" || d.SQL == "rollback":
		k.inside = 0
	case strings.HasPrefix(d.SQL, "begin") || k.inside > 0:
		if k.inside++; k.inside != 2 {
			return ctx
		}
	}
	k.n++
	if k.n == k.at {
		k.sql = strings.Join(strings.Fields(d.SQL), " ")
	}
	return context.WithValue(ctx, fatal{}, k.n == k.at)
}

func (k *killer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryEndData) {
	if last, _ := ctx.Value(fatal{}).(bool); last {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.dead = true
		conn.PgConn().Conn().Close()
	}
}

// looks says whether a statement changes nothing that outlives its session.
func looks(sql string) bool {
	for line := range strings.Lines(sql) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			return strings.HasPrefix(line, "SELECT") || strings.HasPrefix(line, "SET ")
		}
	}
	return true
}

// Killed after any of its statements, on an adopted table and on a fresh one, the next up goes on and ends where an
// undisturbed one ends.
func TestKilledAfterEveryStatement(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		killAfterEach(t, func(t *testing.T) *testdb.DB { return testdb.LegacyOn(t, server, 40) })
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		killAfterEach(t, func(t *testing.T) *testdb.DB { return testdb.Empty(t) })
	})
}

func killAfterEach(t *testing.T, make func(*testing.T) *testdb.DB) {
	undisturbed := make(t)
	undisturbed.Migrate(t, options)
	want := shape(t, undisturbed)
	more := true
	for at := 1; more; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			db := make(t)
			k := &killer{at: at}
			config := db.Config.Copy()
			config.Tracer = k
			err := migrations.Up(t.Context(), config, migrations.Options{Table: db.Table})
			if more = k.sql != ""; !more {
				if err != nil || at < 15 {
					t.Fatalf("undisturbed, %d statements: %v", k.n, err)
				}
				return
			}
			db.Migrate(t, options)
			if got := shape(t, db); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("killed after %s:", k.sql)
				sameShape(t, got, want)
			}
			if got := testdb.One[int](t, db, unstamped); got != 0 {
				t.Errorf("killed after %s: %d rows whose finished_at or reason doesn't fit", k.sql, got)
			}
		})
	}
}

// An index build that was cut leaves an invalid index, which the next up drops and builds again. A transaction that is
// older than the build holds it up until its session is ended.
func TestInterruptedIndexBuild(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 400)
		holder, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback(context.WithoutCancel(t.Context()))
		config := db.Config.Copy()
		config.RuntimeParams["application_name"] = "migrate " + db.Schema
		ended := make(chan error, 1)
		up := func() { ended <- migrations.Up(t.Context(), config, migrations.Options{Table: db.Table}) }
		db.Migrate(t, migrations.Options{WithoutOrder: true})
		if _, err := holder.Exec(t.Context(), `INSERT INTO jobs (kind, payload) VALUES ('k', '1')`); err != nil {
			t.Fatal(err)
		}
		go up()
		waitFor(t, "an index that isn't valid", func() bool {
			return testdb.One[int](t, db, `SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('jobs_order_idx') AND NOT indisvalid`) == 1
		})
		db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, config.RuntimeParams["application_name"])
		wantErr(t, <-ended, "jobs_order_idx")
		if got := testdb.One[int](t, db, `SELECT count(*) FROM pg_index WHERE indrelid = 'jobs'::regclass AND NOT indisvalid`); got != 1 {
			t.Fatalf("invalid indexes after the cut: got %d, want 1", got)
		}
		go up()
		// While it waits, others work.
		db.Exec(t, `UPDATE jobs SET priority = 1 WHERE id = 1`)
		if err := holder.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		fresh := testdb.New(t)
		sameShape(t, without(shape(t, db), "jobs_status_check", "_ready_idx", "_running_idx"), shape(t, fresh))
	})
}
