package migrations_test

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

var options = migrations.Options{}

func constraintOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}

func dropRole(t *testing.T, db *testdb.DB, role string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if _, err := db.Pool.Exec(ctx, `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
		t.Errorf("drop role %s: %v", role, err)
	}
}

// relay_owns is the published formula: users and other languages compute it as well.
func TestRelayOwns(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ('none', 0), ('some', 25), ('most', 99), ('all', 100)`)
		shares := map[string]uint32{"none": 0, "some": 25, "most": 99, "all": 100, "unknown": 0}
		owned := 0
		for kind, share := range shares {
			for id := range int64(300) {
				key, text := any(nil), fmt.Sprint(id)
				if id%2 == 0 {
					key, text = fmt.Sprintf("ключ-%d", id), fmt.Sprintf("ключ-%d", id)
				}
				sum := md5.Sum([]byte(text))
				want := binary.BigEndian.Uint32(sum[:4])%100 < share
				if got := testdb.One[bool](t, db, `SELECT relay_owns($1, $2, $3)`, kind, key, id); got != want {
					t.Fatalf("relay_owns(%s, %v, %d) with share %d: got %t, want %t", kind, key, id, share, got, want)
				} else if got && kind == "some" {
					owned++
				}
			}
		}
		if owned < 45 || owned > 105 {
			t.Errorf("a share of 25 owns %d of 300 jobs", owned)
		}
	})
}

// A function must work for callers with any search_path, and for one who shadows what it uses.
func TestFunctionsIgnoreTheSearchPath(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	conn, err := pgx.ConnectConfig(t.Context(), db.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		`CREATE TEMP TABLE relay_kinds (kind text, share int)`,
		`CREATE TEMP TABLE relay_closed_keys (nothing int)`,
		`SET search_path = pg_temp`,
		fmt.Sprintf(`SELECT %[1]s.relay_notify(), %[1]s.relay_key_lock('k'), %[1]s.relay_owns('k', 'k', 1)`, db.Schema),
		fmt.Sprintf(`INSERT INTO %s.jobs (kind, key, payload, status) VALUES ('k', 'a', '1', 'dead')`, db.Schema),
		fmt.Sprintf(`UPDATE %s.jobs SET status = 'ready'`, db.Schema),
		fmt.Sprintf(`UPDATE %s.jobs SET status = 'dead'`, db.Schema),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if got := testdb.One[int](t, db, `SELECT count(*) FROM relay_closed_keys`); got != 1 {
		t.Errorf("closed keys in the table's schema: got %d, want 1", got)
	}
}

// One open transaction notifies; others that commit meanwhile don't wait for it and don't notify.
func TestRelayNotifyIsGuarded(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		table := db.Schema // the channel is named after the table, and shared by all schemas: jobs_ready would hear other tests
		if err := migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Schema + "." + table}); err != nil {
			t.Fatal(err)
		}
		listener, err := pgx.ConnectConfig(t.Context(), db.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close(context.WithoutCancel(t.Context()))
		if _, err := listener.Exec(t.Context(), `LISTEN `+table+`_ready`); err != nil {
			t.Fatal(err)
		}
		first, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Rollback(context.WithoutCancel(t.Context()))
		if _, err := first.Exec(t.Context(), `SELECT relay_notify(), relay_notify()`); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `SELECT relay_notify()`)
		db.Exec(t, `SELECT pg_notify($1, 'by hand')`, table+"_ready")
		if got := next(t, listener); got != "by hand" {
			t.Errorf("first notification: got %q, want the one by hand: the guard let a second one through", got)
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := next(t, listener); got != "" {
			t.Errorf("notification of the first transaction: got payload %q, want an empty one", got)
		}
		db.Exec(t, `SELECT relay_notify()`)
		if got := next(t, listener); got != "" {
			t.Errorf("notification after it: got payload %q, want an empty one", got)
		}
	})
}

func next(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		t.Fatalf("wait for a notification: %v", err)
	}
	return n.Payload
}

// Two producers of one key take turns; another key goes on.
func TestRelayKeyLock(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		first, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Rollback(context.WithoutCancel(t.Context()))
		if _, err := first.Exec(t.Context(), `SELECT relay_key_lock('a')`); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `SELECT relay_key_lock('b'), relay_key_lock(NULL)`)
		second := make(chan error, 1)
		go func() {
			_, err := db.Pool.Exec(t.Context(), `SELECT relay_key_lock('a')`)
			second <- err
		}()
		waitFor(t, "the second producer to wait", func() bool {
			return testdb.One[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%relay_key_lock(''a'')%' AND pid <> pg_backend_pid())`)
		})
		select {
		case err := <-second:
			t.Fatalf("the second producer didn't wait: %v", err)
		default:
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second producer: %v", err)
		}
	})
}

// A claim is a heap-only update, and so is everything of a relay until it settles.
func TestClaimIsHOT(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		conn, err := pgx.ConnectConfig(t.Context(), db.Config) // its own, so that its statistics can be flushed
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		// Each statement meets rows that nobody has changed yet: what earlier versions left is not made room of while another
		// test of the same server holds a snapshot.
		fill := func(status string) {
			db.Exec(t, `TRUNCATE jobs`)
			db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, lease_token, leased_until)
				SELECT 'k', g::text, '{"pad": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}', $1, CASE $1 WHEN 'running' THEN 4 END, CASE $1 WHEN 'running' THEN now() END
				FROM generate_series(1, 1000) g`, status)
		}
		for _, c := range []struct{ from, sql string }{
			{"ready", `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '1 minute', lease_token = 5`},
			{"running", `UPDATE jobs SET leased_until = now() + interval '2 minutes', delivered = '{a}', alone = true`},
			{"running", `UPDATE jobs SET status = 'ready', lease_token = NULL, leased_until = NULL`},
		} {
			fill(c.from)
			if all, hot := change(t, db, conn, c.sql); all != 1000 || hot < 990 {
				t.Errorf("%s: %d updates, of which %d were heap-only, want 1000 and nearly all", c.sql, all, hot)
			}
		}
		// That the test can fail: settling moves a row from one index to another.
		fill("running")
		if all, hot := change(t, db, conn, `UPDATE jobs SET status = 'done', finished_at = now()`); all != 1000 || hot != 0 {
			t.Errorf("settling as done: %d updates, of which %d were heap-only, want 1000 and 0", all, hot)
		}
	})
}

// change runs an update and says how many rows it changed, and how many of them within their page and their indexes.
func change(t *testing.T, db *testdb.DB, conn *pgx.Conn, sql string) (all, hot int) {
	t.Helper()
	allBefore, hotBefore := updates(t, db)
	for _, s := range []string{sql, `SELECT pg_stat_force_next_flush()`, `SELECT 1`} {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	waitFor(t, "statistics", func() bool { n, _ := updates(t, db); return n >= allBefore+1000 })
	all, hot = updates(t, db)
	return all - allBefore, hot - hotBefore
}

func updates(t *testing.T, db *testdb.DB) (all, hot int) {
	t.Helper()
	return testdb.One[int](t, db, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass`),
		testdb.One[int](t, db, `SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass`)
}
