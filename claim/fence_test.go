package claim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrelay/relay/internal/testdb"
)

// The old workers' statements, as the well-known single-table design has them.
const (
	oldClaim = `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '30 seconds'
		WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() ORDER BY run_at, id FOR UPDATE SKIP LOCKED LIMIT 1)`
	oldDone = `UPDATE jobs SET status = 'done', leased_until = NULL WHERE id = $1 AND status = 'running' AND attempts = $2`
	oldReap = `UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END, leased_until = NULL, last_error = 'lease expired'
		WHERE status = 'running' AND leased_until < now()`
	requeueByHand = `UPDATE jobs SET status = 'ready', attempts = 0, run_at = now() WHERE id = $1`
	expire        = `UPDATE jobs SET leased_until = now() - interval '1 second' WHERE id = $1`
)

// world is one job, a relay that has claimed it and stalls, and a second relay.
type world struct {
	t              testing.TB
	db             *testdb.DB
	stalled, other *Queue
	id             int64
	lease          *Lease
}

func newWorld(t testing.TB, db *testdb.DB, o Options) *world {
	t.Helper()
	db.Exec(t, "DELETE FROM jobs")
	w := &world{t: t, db: db, stalled: newQueue(t, db, o), other: newQueue(t, db, o)}
	w.id = insert(t, db, "k", 1)[0]
	w.lease = claimOne(t, w.stalled)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if n := w.db.Exec(w.t, sql, args...); n != 1 {
		w.t.Fatalf("%s: changed %d rows, want 1", sql, n)
	}
}

// reap lets the lease run out and the other relay end it.
func (w *world) reap() {
	w.t.Helper()
	w.exec(expire, w.id)
	w.other.asked(-time.Hour)
	if s := sweep(w.t, w.other); s.Reaped["k"] != 1 {
		w.t.Fatalf("reaped %v, want one", s.Reaped)
	}
}

// asked makes the queue believe that its pairs were last claimed so long ago.
func (q *Queue) asked(ago time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.all() {
		p.asked = time.Now().Add(ago)
	}
}

// The stalled relay's late settlement in every situation that others may have brought about. Changes says whether it
// may change the row; it never may once somebody else has claimed the job.
func TestB06Fence(t *testing.T) {
	t.Parallel()
	onEach(t, testFence)
}

func testFence(t *testing.T, newDB func(testing.TB) *testdb.DB) {
	all := []Verdict{Done, Retry, Dead, Release}
	for _, c := range []struct {
		name    string
		others  func(*world)
		changes []Verdict
	}{
		{"nothing happened", func(*world) {}, all},
		{"lease over, not reaped", func(w *world) { w.exec(expire, w.id) }, all},
		{"reaped", (*world).reap, []Verdict{Done}},
		{"reaped to dead", func(w *world) { w.exec(`UPDATE jobs SET max_attempts = 1`); w.reap() }, []Verdict{Done}},
		{"reaped by an old worker's reaper", func(w *world) { w.exec(expire, w.id); w.exec(oldReap) }, []Verdict{Done}},
		{"reaped and claimed by a relay", func(w *world) { w.reap(); claimOne(w.t, w.other) }, nil},
		{"reaped and claimed by an old worker", func(w *world) { w.reap(); w.exec(oldClaim) }, nil},
		{"claimed and done by an old worker", func(w *world) { w.reap(); w.exec(oldClaim); w.exec(oldDone, w.id, 2) }, nil},
		{"claimed and released by a relay", func(w *world) {
			w.reap()
			settle(w.t, w.other, []Lease{*claimOne(w.t, w.other)}, Outcome{Verdict: Release})
		}, nil},
		{"claimed and done by a relay", func(w *world) {
			w.reap()
			settle(w.t, w.other, []Lease{*claimOne(w.t, w.other)}, Outcome{Verdict: Done})
		}, nil},
		{"claimed and dead by a relay", func(w *world) {
			w.reap()
			settle(w.t, w.other, []Lease{*claimOne(w.t, w.other)}, Outcome{Verdict: Dead, Error: "no"})
		}, nil},
		{"requeued by hand while running", func(w *world) { w.exec(requeueByHand, w.id) }, []Verdict{Done}},
		{"requeued by hand and claimed by an old worker, attempts equal", func(w *world) { w.exec(requeueByHand, w.id); w.exec(oldClaim) }, nil},
		{"requeued by hand and claimed by a relay, attempts equal", func(w *world) {
			w.exec(requeueByHand, w.id)
			w.other.Reset(every)
			claimOne(w.t, w.other)
		}, nil},
		{"dead and requeued", func(w *world) {
			w.exec(`UPDATE jobs SET max_attempts = 1`)
			w.reap()
			if c, err := w.other.s.RequeueDead(w.t.Context(), Filter{}, false); err != nil || c.Changed != 1 {
				w.t.Fatal(c, err)
			}
		}, nil},
		{"already settled as done", func(w *world) { settle(w.t, w.stalled, []Lease{*w.lease}, Outcome{Verdict: Done}) }, nil},
		{"done, and put back by hand", func(w *world) {
			w.exec(`UPDATE jobs SET status = 'done' WHERE id = $1`, w.id) // not by a settlement, which may delete it
			w.exec(`UPDATE jobs SET status = 'ready' WHERE id = $1`, w.id)
		}, nil},
		{"already settled as retry", func(w *world) { settle(w.t, w.stalled, []Lease{*w.lease}, Outcome{Verdict: Retry, Error: "x"}) }, nil},
		{"already settled as dead", func(w *world) { settle(w.t, w.stalled, []Lease{*w.lease}, Outcome{Verdict: Dead, Error: "x"}) }, []Verdict{Done}},
		{"deleted", func(w *world) { w.exec(`DELETE FROM jobs`) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			for _, v := range all {
				w := newWorld(t, db, Options{})
				c.others(w)
				w.settleLate(v, slices.Contains(c.changes, v))
			}
			w := newWorld(t, db, Options{DeleteDone: true})
			c.others(w)
			w.settleLate(Done, slices.Contains(c.changes, Done))
			w = newWorld(t, db, Options{})
			c.others(w)
			w.extendLate(slices.Contains(c.changes, Retry))
		})
	}
}

const whole = `SELECT coalesce((SELECT j::text FROM jobs j), 'none')`

func (w *world) settleLate(v Verdict, changes bool) {
	w.t.Helper()
	before := testdb.One[string](w.t, w.db, whole)
	lost := settle(w.t, w.stalled, []Lease{*w.lease}, Outcome{Verdict: v, Error: "late", Delivered: []string{"a"}})
	after := testdb.One[string](w.t, w.db, whole)
	if (len(lost) == 0) != changes || (before != after) != changes {
		w.t.Errorf("%v: lost %v, want a change: %v\nbefore %s\n after %s", v, lost, changes, before, after)
	}
}

func (w *world) extendLate(changes bool) {
	w.t.Helper()
	before := testdb.One[string](w.t, w.db, whole)
	until := w.lease.Until
	lost, err := w.stalled.Extend(w.t.Context(), []*Lease{w.lease})
	if err != nil {
		w.t.Fatal(err)
	}
	after := testdb.One[string](w.t, w.db, whole)
	if (len(lost) == 0) != changes || (before != after) != changes || w.lease.Until.After(until) != changes {
		w.t.Errorf("extend: lost %v, want a change: %v\nbefore %s\n after %s", lost, changes, before, after)
	}
}

// What each verdict writes.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome Outcome
		want    string // status, attempts, token kept, leased, finished, error, alone, delivered, run_at in seconds from now
	}{
		{"done", Outcome{Verdict: Done, Delivered: []string{"b", "c"}}, "done 3 true false true - true {a,b,c} 0"},
		{"retry", Outcome{Verdict: Retry, After: time.Hour, Error: "e"}, "ready 3 false false false e false {a} 3600"},
		{"retry alone", Outcome{Verdict: Retry, Alone: true, Error: "e", Delivered: []string{"b"}}, "ready 3 false false false e true {a,b} 0"},
		{"dead", Outcome{Verdict: Dead, Error: "e"}, "dead 3 true false true e true {a} 0"},
		{"release", Outcome{Verdict: Release, Delivered: []string{"a"}}, "ready 2 false false false old true {a} 0"},
		{"release for a pause", Outcome{Verdict: Release, After: time.Minute, Error: "away"}, "ready 2 false false false away true {a} 60"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			db.Exec(t, `INSERT INTO jobs (kind, payload, attempts, alone, delivered, last_error) VALUES ('k', '1', 2, true, '{a}', 'old')`)
			q := newQueue(t, db, Options{})
			settle(t, q, []Lease{*claimOne(t, q)}, c.outcome)
			got := testdb.One[string](t, db, `SELECT concat_ws(' ', status, attempts, (lease_token IS NOT NULL)::text, (leased_until IS NOT NULL)::text, (finished_at IS NOT NULL)::text,
				coalesce(last_error, '-'), alone::text, delivered, round(extract(epoch FROM run_at - now()) / 60) * 60) FROM jobs`)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// One transaction holds all verdicts of a batch, from several claims.
func TestSettleMixesVerdictsAndClaims(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	insert(t, db, "k", 100)
	q := newQueue(t, db, Options{BatchSize: 50})
	leases := append(claim(t, q), claim(t, q)...)
	var outcomes []Outcome
	for i := range leases {
		outcomes = append(outcomes, Outcome{Lease: &leases[i], Verdict: Verdict(i % 4), After: time.Hour, Error: "x", Delivered: [][]string{{"a"}, {"b"}}[i%3%2]})
	}
	if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if got := testdb.One[string](t, db, `SELECT string_agg(status || n, ' ' ORDER BY status) FROM (SELECT status, count(*) n FROM jobs GROUP BY 1) c`); got != "dead25 done25 ready50" {
		t.Error(got)
	}
}

// An error text that Postgres would refuse, or that is endless, is made one that it takes.
func TestSettleCleansTheReason(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	id := insert(t, db, "k", 1)[0]
	q := newQueue(t, db, Options{})
	text := "a\x00b\xffé"
	for len(text) < 3*reasonMost {
		text += "é"
	}
	settle(t, q, []Lease{*claimOne(t, q)}, Outcome{Verdict: Dead, Error: text})
	if got := *read(t, db, id).Error; len(got) > reasonMost || len(got) < reasonMost-4 || got[:9] != "a\uFFFDb\uFFFDé"[:9] {
		t.Errorf("%d bytes: %q", len(got), got[:20])
	}
}

// A row that somebody's trigger refuses doesn't keep the others from settling.
func TestSettleLeavesOutARefusedRow(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := insert(t, db, "k", 9)
	db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.payload = '{"n": 5}' THEN RAISE 'no'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.status = 'done') EXECUTE FUNCTION refuse()`)
	q := newQueue(t, db, Options{})
	leases := claim(t, q)
	outcomes := make([]Outcome, len(leases))
	for i := range leases {
		outcomes[i] = Outcome{Lease: &leases[i], Verdict: Done}
	}
	_, err := q.Settle(t.Context(), outcomes)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "P0001" {
		t.Errorf("error %v, want the trigger's", err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'done'`); n != 8 {
		t.Errorf("%d of 8 done", n)
	}
	if r := read(t, db, ids[4]); r.Status != "running" {
		t.Errorf("the refused one is %s", r.Status)
	}
}

// A job that was released is claimed again at once, although the floor has passed it.
func TestReleasedJobsAreClaimedAgainAtOnce(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at) SELECT 'k', '1', now() - interval '1 hour' FROM generate_series(1, 10)`)
	q := newQueue(t, db, Options{BatchSize: 5})
	first := claim(t, q)
	second := claim(t, q)
	if got := len(claim(t, q)); got != 0 {
		t.Fatalf("claimed %d", got)
	}
	settle(t, q, second, Outcome{Verdict: Done})
	settle(t, q, first, Outcome{Verdict: Release})
	if got := len(claim(t, q)); got != 5 {
		t.Errorf("claimed %d of the 5 released jobs", got)
	}
}
