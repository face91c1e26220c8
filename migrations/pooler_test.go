package migrations_test

import (
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

func config(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A pooler that gives sessions to others after each transaction would lend what a migration sets to applications, and its
// lock to nobody: everything that changes or prints says so, and a look leaves no trace.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	pooled, o := config(t, db.Bouncer(t)), migrations.Options{Table: db.Table}
	for what, err := range map[string]error{
		"up":     migrations.Up(t.Context(), pooled, o),
		"down":   migrations.Down(t.Context(), pooled, o),
		"retire": migrations.Retire(t.Context(), pooled, o),
		"print":  migrations.SQL(t.Context(), pooled, o, io.Discard),
	} {
		if !errors.Is(err, migrations.ErrPooled) {
			t.Errorf("%s: got %v, want ErrPooled", what, err)
		}
	}
	if steps, err := migrations.Status(t.Context(), pooled, o); err != nil || len(steps) == 0 {
		t.Errorf("status: %v, %v", steps, err)
	}
	pooled.DefaultQueryExecMode = pgx.QueryExecModeExec
	want := testdb.One[string](t, db, "SHOW lock_timeout")
	for range 3 { // as many as the pooler has, each kept busy
		conn, err := pgx.ConnectConfig(t.Context(), pooled)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var got string
		if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&got); err != nil || got != want {
			t.Errorf("a session of the pooler has the lock_timeout %s, want %s (%v)", got, want, err)
		}
	}
	if n := testdb.One[int](t, db, "SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace", `"`+db.Schema+`"`); n != 0 {
		t.Errorf("%d relations were made", n)
	}
}

func TestSessionPooler(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	o := migrations.Options{Table: db.Table}
	if err := migrations.Up(t.Context(), config(t, db.SessionBouncer(t)), o); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), db.Pool, db.Table); err != nil {
		t.Error(err)
	}
}
