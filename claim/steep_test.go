package claim

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

// steep drains so many jobs of the kind beside a held snapshot: whoever walks over them takes far longer than steepBound.
const (
	steepDrained = 400_000
	steepBound   = 25 * time.Millisecond
)

func steep(t *testing.T, keys bool) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'k', CASE WHEN $2 THEN 'key' || g END, '1', now() - interval '1 hour' + g * interval '1 millisecond'
		FROM generate_series(1, $1::int) g`, steepDrained, keys)
	hold(t, db)
	db.Exec(t, `DELETE FROM jobs`)
	return db
}

// try claims once. On a busy machine any statement may exceed the bound.
func tryClaim(t testing.TB, q *Queue) []Lease {
	t.Helper()
	leases, err := q.Claim(t.Context(), open)
	if err != nil && !cutOff(err) {
		t.Fatal(err)
	}
	return leases
}

func trySweep(t testing.TB, q *Queue) Swept {
	t.Helper()
	swept, err := q.Sweep(t.Context())
	if err != nil && !cutOff(err) {
		t.Fatal(err)
	}
	return swept
}

// A process that starts beside a held snapshot, where a walk over what was drained takes longer than a statement may,
// still claims what is new, finds what is old, and ends leases; whether it knows its kinds or must find them.
func TestStartBesideWhatWasDrained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		expect, keys, glob bool
	}{{name: "exact", expect: true}, {name: "glob"}, {name: "ordered", expect: true, keys: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := steep(t, c.keys)
			old := testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '"old"', now() - interval '70 minutes') RETURNING id`)
			expired := testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at, status, attempts, leased_until, lease_token)
				VALUES ('k', '"expired"', now() - interval '58 minutes', 'running', 1, now() - interval '1 minute', 7) RETURNING id`)
			q := newQueue(t, db, Options{Statement: steepBound})
			q.OrderOf(func(string) Order { return Order{Keys: c.keys} })
			if c.expect {
				q.Expect("k")
			}
			fresh := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload) VALUES ('k', CASE WHEN $1 THEN 'fresh' END, '"fresh"') RETURNING id`, c.keys)
			missing := map[int64]string{old: "old", expired: "expired", fresh: "fresh"}
			start := time.Now()
			eventually(t, "all are claimed", func() bool {
				for _, l := range tryClaim(t, q) {
					t.Logf("%s after %v", missing[l.ID], time.Since(start))
					delete(missing, l.ID)
				}
				trySweep(t, q)
				return len(missing) == 0
			})
		})
	}
}

// The backlog of a restart is claimed at once and from its beginning: nothing waits for a sweep.
func TestStartWithABacklog(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, waitingJobs, 2000)
	for _, expect := range []bool{true, false} {
		q := newQueue(t, db, Options{})
		if expect {
			q.Expect("k")
		}
		next := testdb.One[int64](t, db, `SELECT min(id) FROM jobs WHERE status = 'ready'`)
		for range 2 {
			for i, l := range claim(t, q) {
				if l.ID != next {
					t.Fatalf("job %d comes as number %d, want %d", l.ID, i, next)
				}
				next++
			}
		}
		if next%500 != 1 {
			t.Errorf("claimed up to %d", next)
		}
	}
}

// A due job that somebody has locked costs a look a second, not one as often as can be, and is claimed soon after.
func TestLockedRowIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		keys bool
	}{{"without an order", false}, {"ordered", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			q := newQueue(t, db, Options{})
			q.OrderOf(func(string) Order { return Order{Keys: c.keys} })
			drain(t, q)
			insert(t, db, "k", 1)
			drain(t, q)
			raiseFloors(t, q, time.Now())
			id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', now() - interval '1 hour') RETURNING id`)
			tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = $1 FOR UPDATE`, id); err != nil {
				t.Fatal(err)
			}
			// As the relay does it: at once again while there is something, else once a second.
			rounds, start, last := 0, time.Now(), time.Time{}
			round := func() (claimed bool) {
				if wait := time.Second - time.Since(last); wait > 0 {
					time.Sleep(wait)
				}
				rounds++
				if last = time.Now(); sweep(t, q).Due > 0 {
					last = time.Time{}
				}
				got := claim(t, q)
				return len(got) == 1 && got[0].ID == id
			}
			for time.Since(start) < 3*time.Second {
				if rounds > 20 {
					t.Fatalf("%d rounds within %v", rounds, time.Since(start))
				}
				if round() {
					t.Fatal("claimed what is locked")
				}
			}
			t.Logf("%d rounds", rounds)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			free := time.Now()
			eventually(t, "it is claimed", round)
			if took := time.Since(free); took > 10*time.Second {
				t.Errorf("claimed %v after the lock was gone", took)
			}
		})
	}
}
