package claim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// finished adds finished jobs of a kind, a millisecond apart, the first so long ago.
func finished(t testing.TB, db *testdb.DB, kind, status, token, ago string, n int) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`INSERT INTO jobs (kind, payload, status, lease_token, last_error, finished_at)
		SELECT '%[1]s', '1', '%[2]s', %[3]s, CASE WHEN '%[2]s' = 'dead' THEN 'x' END, now() - interval '%[4]s' + g * interval '1 ms' FROM generate_series(1, %[5]d) g`, kind, status, token, ago, n))
}

// However many jobs that stay come first, and however little time there is, the others go, those of other kinds as well:
// a walk that begins anew doesn't keep the one that goes on from its end.
func TestCleanReachesItsOwnBehindOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, status, token string }{{"old workers' jobs", "done", "NULL"}, {"dead ones that are kept", "dead", "7"}, {"dead ones that aren't old enough", "dead", "7"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			db.Exec(t, noAutovacuum)
			finished(t, db, "a", c.status, c.token, "2 days", 60_000)
			finished(t, db, "a", "done", "7", "1 day", 3000)
			for _, kind := range []string{"b", "c", "d"} {
				finished(t, db, kind, "done", "7", "1 day", 3000)
			}
			q := newQueue(t, db, Options{})
			a := ages{done: time.Hour}
			if c.name == "dead ones that aren't old enough" {
				a.dead = 30 * 24 * time.Hour
			}
			var removed int64
			calls := map[string]int{}
			for call := 1; removed < 12_000; call++ {
				n, err := q.clean(t.Context(), a, cleanTimes{budget: 20 * time.Millisecond, again: time.Millisecond})
				if removed += n; err != nil || call > 200 {
					t.Fatalf("removed %d in %d calls, %v", removed, call, err)
				}
				left := testdb.Column[string](t, db, `SELECT DISTINCT kind FROM jobs WHERE lease_token = 7 AND status = 'done'`)
				for _, kind := range []string{"a", "b", "c", "d"} {
					if calls[kind] == 0 && !slices.Contains(left, kind) {
						calls[kind] = call
					}
				}
			}
			t.Log("done after this many calls:", calls)
			for _, kind := range []string{"b", "c", "d"} {
				if calls[kind] > calls["a"] {
					t.Errorf("kind %s waited for kind a: %v", kind, calls)
				}
			}
			if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs`); n != 60_000 {
				t.Errorf("%d are left", n)
			}
		})
	}
}

// What was locked when the walk came by goes later.
func TestCleanWalksAgain(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	finished(t, db, "k", "done", "7", "1 day", 2500)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id IN (SELECT min(id) FROM jobs) FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	q := newQueue(t, db, Options{})
	clean := func(pause time.Duration) int64 {
		n, err := q.clean(t.Context(), ages{done: time.Hour}, cleanTimes{time.Second, pause})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := clean(time.Millisecond); n != 2499 {
		t.Errorf("removed %d, want all but the one that is locked", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last goes", func() bool { return clean(time.Millisecond) == 1 })
}

// A dead job that holds its key is kept until somebody decides; where keys aren't kept, or a dead one doesn't hold its own,
// it goes like any other.
func TestCleanLeavesDeadJobsThatHoldTheirKey(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	for _, kind := range []string{"closes", "skips", "free"} {
		db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, lease_token, last_error, finished_at)
			SELECT $1, key, '1', 'dead', 7, 'x', now() - interval '2 days' FROM unnest(ARRAY[NULL, 'held', 'reopened']) AS key`, kind)
	}
	db.Exec(t, `DELETE FROM relay_closed_keys WHERE key = 'reopened'`)
	q := newQueue(t, db, Options{})
	q.OrderOf(func(kind string) Order { return Order{Keys: kind != "free", Skip: kind == "skips"} })
	if n, err := q.Clean(t.Context(), time.Hour, time.Hour); err != nil || n != 8 {
		t.Errorf("removed %d, %v; want 8", n, err)
	}
	left := testdb.Column[string](t, db, `SELECT concat_ws(' ', j.kind, j.key) FROM jobs AS j JOIN relay_closed_keys AS c ON c.job = j.id`)
	if n := testdb.One[int](t, db, `SELECT count(*) FROM relay_closed_keys`); !slices.Equal(left, []string{"closes held"}) || n != 1 {
		t.Errorf("left: %v and %d closed keys, want the one that holds its key", left, n)
	}
	db.Exec(t, `DELETE FROM relay_closed_keys`) // relay keys reopen
	q.cleaner.walks = nil                       // it came by before
	if n, err := q.Clean(t.Context(), time.Hour, time.Hour); err != nil || n != 1 {
		t.Errorf("removed %d, %v after the key was reopened; want 1", n, err)
	}
}

// Closed keys whose job was deleted, by whatever means and of whatever kind, are forgotten, page by page; others stay.
func TestCleanForgetsKeysOfDeletedJobs(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	finished(t, db, "k", "dead", "7", "1 s", 2500)
	db.Exec(t, `UPDATE jobs SET status = 'ready', lease_token = NULL; UPDATE jobs SET key = 'key ' || id, kind = 'k' || id % 3; UPDATE jobs SET status = 'dead', lease_token = 7, last_error = 'x'`)
	late := newQueue(t, db, Options{DeleteDone: true})
	key := "late"
	id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload, status, lease_token, last_error) VALUES ('k0', 'late', '1', 'dead', 8, 'lease expired') RETURNING id`)
	if lost := settle(t, late, []Lease{{ID: id, Token: 8, Kind: "k0", Key: &key}}, Outcome{Verdict: Done}); len(lost) > 0 {
		t.Fatalf("lost %v", lost)
	}
	db.Exec(t, `DELETE FROM jobs WHERE status = 'dead' AND id % 10 > 0`)
	const closed = `SELECT count(*) FROM relay_closed_keys`
	if n := testdb.One[int](t, db, closed); n != 2501 {
		t.Fatalf("%d keys are closed, want 2501", n)
	}
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "k1" })
	for call := range 6 {
		before := testdb.One[int](t, db, closed)
		if _, err := q.Clean(t.Context(), -1, 0); err != nil {
			t.Fatal(err)
		}
		if n := before - testdb.One[int](t, db, closed); n > cleanRows {
			t.Errorf("call %d removed %d", call, n)
		}
	}
	if n := testdb.One[int](t, db, closed); n != 250 {
		t.Errorf("%d keys are closed, want 250", n)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM relay_closed_keys AS c JOIN jobs AS j ON j.id = c.job WHERE j.status = 'dead'`); n != 250 {
		t.Errorf("%d of them have a dead job", n)
	}
}
