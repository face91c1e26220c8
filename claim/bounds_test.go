package claim

import (
	"context"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// Between the look at a lease and its end others may act: what holds again, is settled, or was claimed by an old worker
// stays as it is.
func TestReapLooksAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, meanwhile string
		reaped          bool
	}{
		{"nothing happens", `SELECT`, true},
		{"its holder renews it", `UPDATE jobs SET leased_until = now() + interval '1 hour'`, false},
		{"its holder gives it back", `UPDATE jobs SET status = 'ready', lease_token = NULL, leased_until = NULL`, false},
		{"its holder settles it", `UPDATE jobs SET status = 'done'`, false},
		{"an old worker claims it and stalls", `UPDATE jobs SET status = 'ready'; UPDATE jobs SET status = 'running', attempts = 2`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			id := insert(t, db, "k", 1)[0]
			db.Exec(t, `UPDATE jobs SET status = 'running', attempts = 1, lease_token = 7, leased_until = now() - interval '1 s'`)
			db.Exec(t, c.meanwhile)
			before, out := testdb.One[string](t, db, whole), Swept{Reaped: map[string]int{}, Dead: map[string]int{}}
			if err := newQueue(t, db, Options{}).reapSome(t.Context(), []int64{id}, &out); err != nil {
				t.Fatal(err)
			}
			after := testdb.One[string](t, db, whole)
			if (out.Reaped["k"] == 1) != c.reaped || (before != after) != c.reaped {
				t.Errorf("reaped %v, want %v\nbefore %s\n after %s", out.Reaped, c.reaped, before, after)
			}
		})
	}
}

// largest says how many rows one statement on the jobs has changed or deleted at most, from now on.
func largest(t *testing.T, db *testdb.DB, event string) func() int {
	t.Helper()
	db.Exec(t, `CREATE TABLE statements (n bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO statements SELECT count(*) FROM before; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER `+event+` ON jobs REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	return func() int { return testdb.One[int](t, db, `SELECT max(n) FROM statements`) }
}

// However many leases are over, a transaction that ends some of them is short.
func TestReapIsBounded(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, leased_until, lease_token) SELECT 'k', '1', 'running', 1, now() - interval '1s', 7 FROM generate_series(1, 2500)`)
	most := largest(t, db, "UPDATE")
	if s := sweep(t, newQueue(t, db, Options{})); s.Reaped["k"] != 2500 {
		t.Errorf("reaped %v, want 2500", s.Reaped)
	}
	if n := most(); n != reapRows || n > 1000 {
		t.Errorf("%d leases were ended by one statement, want at most 1000", n)
	}
}

// However many jobs are old, a transaction that removes some of them is short.
func TestCleanIsBounded(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, lease_token, finished_at) SELECT 'k', '1', 'done', 7, now() - g * interval '1 minute' FROM generate_series(61, 2560) g`)
	most := largest(t, db, "DELETE")
	if n, err := newQueue(t, db, Options{}).Clean(t.Context(), time.Hour, 0); n != 2500 || err != nil {
		t.Errorf("removed %d of 2500, %v", n, err)
	}
	if n := most(); n > 1000 {
		t.Errorf("%d jobs were removed by one statement, want at most 1000", n)
	}
}

// A row that somebody holds at the moment isn't waited for, and hides no other.
func TestClaimPassesLockedRows(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := insert(t, db, "k", 5)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = ANY ($1) FOR UPDATE`, []int64{ids[0], ids[3]}); err != nil {
		t.Fatal(err)
	}
	q := newQueue(t, db, Options{Statement: 5 * time.Second})
	var got []int64
	for _, l := range claim(t, q) {
		got = append(got, l.ID)
	}
	if len(got) != 3 || got[0] != ids[1] || got[1] != ids[2] || got[2] != ids[4] {
		t.Errorf("claimed %v of %v, of which the first and the fourth are held", got, ids)
	}
}
