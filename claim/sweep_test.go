package claim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// settled makes the queue's floors rise as far as they go: empty claims until the lag has passed over the jobs so far.
func raiseFloors(t testing.TB, q *Queue, above time.Time) {
	t.Helper()
	eventually(t, "the floor is above what was there", func() bool {
		claim(t, q)
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, p := range q.all() {
			if p.floor.less(pointAt(above)) {
				return false
			}
		}
		return true
	})
}

// What comes in below a floor is found by the sweep: late commits (B09), times in the past, and rows that somebody held.
func TestSweepFindsWhatComesLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sql string }{
		{"a time in the past", `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', now() - interval '1 year')`},
		{"at the beginning of time", `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', '-infinity')`},
		{"before our era", `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', '4000-01-01 BC')`},
		{"requeued by hand", `UPDATE jobs SET status = 'ready' WHERE status = 'done'`},
		{"retried by an old worker", `UPDATE jobs SET status = 'ready', run_at = now() - interval '1 hour' WHERE status = 'done'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			insert(t, db, "k", 1)
			q := newQueue(t, db, Options{})
			drain(t, q)
			raiseFloors(t, q, time.Now())
			db.Exec(t, c.sql)
			if got := claim(t, q); len(got) > 0 {
				t.Fatalf("claimed without a sweep: the test proves nothing")
			}
			due := 0
			eventually(t, "it is found", func() bool { due += sweep(t, q).Due; return due > 0 })
			claimOne(t, q)
		})
	}
}

// A transaction that commits after others with larger ids, and after the floor has passed it, loses nothing (B09).
func TestB09SweepFindsALateCommit(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	q.Expect("k")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO jobs (kind, payload) VALUES ('k', '"late"')`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	insert(t, db, "k", 3)
	if got := drain(t, q); len(got) != 3 {
		t.Fatalf("claimed %v", got)
	}
	raiseFloors(t, q, began.Add(time.Second))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, q); len(got) > 0 {
		t.Fatalf("claimed without a sweep: the test proves nothing")
	}
	eventually(t, "it is found", func() bool { return sweep(t, q).Due > 0 })
	if l := claimOne(t, q); string(l.Payload) != `"late"` {
		t.Errorf("claimed %s", l.Payload)
	}
}

// A transaction shorter than the lag needs no sweep.
func TestClaimFindsAShortTransaction(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	q.Expect("k")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '"late"', clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	insert(t, db, "k", 3)
	if got := claim(t, q); len(got) != 3 {
		t.Fatalf("claimed %d", len(got))
	}
	claim(t, q)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	claimOne(t, q)
}

// Expired leases come back, or are dead when their attempts are used up; others stay as they are.
func TestSweepEndsExpiredLeases(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, max_attempts, leased_until, lease_token, run_at, last_error)
		SELECT kind, to_jsonb(name), status, attempts, max, now() + until::interval, token, now() - interval '1 hour', 'before' FROM (VALUES
		('k', 'expired', 'running', 1, 5, '-1s', 7), ('k', 'used up', 'running', 5, 5, '-1s', 7), ('k', 'over max', 'running', 9, 5, '-1s', 7),
		('k', 'odd max', 'running', 1, -1, '-1s', 7), ('k', 'no end', 'running', 1, 5, NULL, 7), ('k', 'held', 'running', 1, 5, '1h', 7),
		('k', 'an old worker''s', 'running', 1, 5, '-1s', NULL), ('theirs', 'not served', 'running', 1, 5, '-1s', 7)) v (kind, name, status, attempts, max, until, token)`)
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "k" })
	s := sweep(t, q)
	if s.Reaped["k"] != 5 || s.Dead["k"] != 3 || len(s.Reaped) != 1 {
		t.Errorf("swept %+v, want 5 reaped, 3 of them dead", s)
	}
	got := testdb.Column[string](t, db, `SELECT concat_ws(', ', payload #>> '{}', status, attempts, coalesce(lease_token::text, 'no token'), last_error,
		CASE WHEN leased_until IS NULL THEN 'no lease' END, CASE WHEN finished_at IS NOT NULL THEN 'finished' END) FROM jobs ORDER BY id`)
	want := []string{"expired, ready, 1, 7, before, no lease", "used up, dead, 5, 7, lease expired, no lease, finished", "over max, dead, 9, 7, lease expired, no lease, finished",
		"odd max, dead, 1, 7, lease expired, no lease, finished", "no end, ready, 1, 7, before, no lease", "held, running, 1, 7, before",
		"an old worker's, running, 1, no token, before", "not served, running, 1, 7, before"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := claim(t, q); len(got) != 2 {
		t.Errorf("claimed %d of the 2 that came back", len(got))
	}
}

// Two processes that reap at once end each lease once.
func TestSweepsReapEachLeaseOnce(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, leased_until, lease_token) SELECT 'k', '1', 'running', 1, now() - interval '1s', 7 FROM generate_series(1, 3000)`)
	type result struct {
		n   int
		err error
	}
	results := make(chan result)
	for range 3 {
		q := newQueue(t, db, Options{})
		go func() {
			s, err := q.Sweep(t.Context())
			results <- result{s.Reaped["k"], err}
		}()
	}
	total := 0
	for range 3 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		total += r.n
	}
	if total != 3000 {
		t.Errorf("%d leases ended, want 3000", total)
	}
}

// More expired leases than a slice holds are ended by the following calls, and a slice's end never hides a row.
func TestSweepGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, leased_until, lease_token, run_at)
		SELECT 'k', '1', 'running', 1, now() + CASE WHEN g % 100 = 0 THEN -1 ELSE 1 END * interval '1 hour', 7, now() - (g % 3) * interval '1 minute' FROM generate_series(1, 17000) g`)
	q := newQueue(t, db, Options{})
	total := 0
	for range 10 {
		total += sweep(t, q).Reaped["k"]
	}
	if total != 170 {
		t.Errorf("%d leases ended, want 170", total)
	}
}

// A kind that is new under a glob is found, its row in relay_kinds is written, and nobody else's is.
func TestSweepFindsNewKinds(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return strings.HasPrefix(kind, "order.") })
	q.ShareOf(func(kind string) int { return map[string]int{"order.half": 50}[kind] + 50 })
	if got := claim(t, q); len(got) > 0 {
		t.Fatal("claimed something")
	}
	db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ('order.set', 100)`)
	for _, kind := range []string{"order.new", "order.half", "order.set", "mail"} {
		insert(t, db, kind, 20)
	}
	start := time.Now()
	eventually(t, "all are found", func() bool { return sweep(t, q).Pairs == 3 })
	t.Logf("found after %v", time.Since(start))
	got := testdb.One[string](t, db, `SELECT string_agg(kind || ' ' || share, ', ' ORDER BY kind) FROM relay_kinds`)
	if got != "order.half 100, order.new 50, order.set 100" {
		t.Errorf("relay_kinds: %s", got)
	}
}

// The shares in relay_kinds hold at once, for claims and for sweeps.
func TestClaimKeepsToTheShare(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ('k', 25)`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, key) SELECT 'k', '1', 'key' || g % 100 FROM generate_series(1, 400) g`)
	owned := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE relay_owns(kind, key, id)`)
	q := newQueue(t, db, Options{})
	if got := len(drain(t, q)); got != owned || owned < 40 || owned > 160 {
		t.Errorf("claimed %d, the relay owns %d of 400", got, owned)
	}
	db.Exec(t, `UPDATE relay_kinds SET share = 0`)
	insert(t, db, "k", 10)
	if got := len(drain(t, q)); got != 0 {
		t.Errorf("claimed %d with a share of 0", got)
	}
	db.Exec(t, `UPDATE relay_kinds SET share = 100`)
	if got := len(drain(t, q)); got != 410-owned {
		t.Errorf("claimed %d with a share of 100, want %d", got, 410-owned)
	}
}

// Beside a held snapshot a pass goes over all that was drained in slices, within ten calls.
func TestSweepPassesOverWhatWasDrained(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, waitingJobs, 50_000)
	hold(t, db)
	db.Exec(t, `DELETE FROM jobs`)
	q := newQueue(t, db, Options{})
	q.Expect("k")
	raiseFloors(t, q, time.Now().Add(-10*time.Second))
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at) SELECT 'k', '1', now() - (g * 5) * interval '1 minute' FROM generate_series(1, 10) g`)
	got := 0
	for range 10 {
		sweep(t, q)
		got += len(claim(t, q))
	}
	if got != 10 {
		t.Errorf("found %d of 10 jobs", got)
	}
}

// A pair that nobody has claimed for a while is swept to its top: leases run out there as well.
func TestSweepReapsBehindAClosedGate(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	id := insert(t, db, "k", 1)[0]
	db.Exec(t, `UPDATE jobs SET status = 'running', attempts = 1, lease_token = 7, leased_until = now() - interval '1 s'`)
	q := newQueue(t, db, Options{})
	if leases, err := q.Claim(t.Context(), func(Pair) Gate { return Gate{} }); err != nil || len(leases) > 0 {
		t.Fatal(leases, err)
	}
	if s := sweep(t, q); s.Reaped["k"] != 1 || read(t, db, id).Status != "ready" {
		t.Errorf("swept %+v", s)
	}
}

// However the slices are cut, one pass covers everything below its end exactly once, and the slices become as wide as
// the time that they take allows.
func TestStripCoversEverything(t *testing.T) {
	t.Parallel()
	s := strip{within: bottom}
	to := point{1_000_000_000, 5}
	// What was drained lies evenly between 0 and the floor.
	took := func(from, until point) time.Duration {
		return time.Duration(until.at-max(from.at, 0)) * time.Microsecond / 5000
	}
	for pass := range 60 {
		to.at += int64(pass%3) * 1_000_000
		if pass == 40 {
			to = point{700_000_000, 1} // the floor sinks
		}
		at, calls, longest := bottom, 0, time.Duration(0)
		for {
			from, until, ok := s.cut(to)
			if !ok || from != at || !from.less(until) {
				t.Fatalf("pass %d: slice from %v to %v, want it to begin at %v", pass, from, until, at)
			}
			if calls++; calls > 200 {
				t.Fatalf("pass %d doesn't end", pass)
			}
			rows := 3
			at = until
			if mid := (point{until.at - 10, 9}); calls%5 == 3 && from.less(mid) {
				rows, at = sliceRows, mid
			}
			longest = max(longest, took(from, until))
			s.passed(rows, at, took(from, at))
			if s.next == 0 && rows < sliceRows {
				break
			}
		}
		if at != to {
			t.Fatalf("pass %d ended at %v, want %v", pass, at, to)
		}
		if pass > 20 && longest > 2*sliceHeavy {
			t.Fatalf("pass %d has a slice of %v", pass, longest)
		}
	}
}

// Statements are loaded, hold a reason, and name the table safely.
func TestStatements(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil || !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s has no header that says why: %v", e.Name(), err)
		}
	}
	for table, want := range map[string]string{
		"jobs": `"jobs"`, "shop.Jobs": `"shop"."Jobs"`, `"a.b".jobs`: `"a.b"."jobs"`, `x"; DROP TABLE y; --`: `"x""; DROP TABLE y; --"`, `"a""b"`: `"a""b"`,
		"": "", "a.b.c": "", `"a"b`: "", "a.": "", `"a`: "",
	} {
		s, err := statementsFor(table)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is accepted: %s", table, s.table)
		case want != "" && (err != nil || s.table != want || !strings.Contains(s.claim, "UPDATE "+want+" AS j")):
			t.Errorf("%q gives %s, %v; want %s", table, s.table, err, want)
		}
	}
	s, err := statementsFor("shop.jobs")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"shop"."relay_kinds"`, `"shop"."relay_owns"(`} {
		if !strings.Contains(s.claim, name) {
			t.Errorf("the claim lacks %s", name)
		}
	}
	for _, text := range []string{s.claim, s.discard, s.sweep} {
		if strings.Contains(text, "--") || strings.Contains(strings.ReplaceAll(text, "::", ""), ":") {
			t.Errorf("a comment or a variable is left: %s", text)
		}
	}
}

// Every statement runs on a table of any name, in any exec mode; see modes_test.go for the modes.
func TestStrangeTableName(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `ALTER TABLE jobs RENAME TO "Jobs; --"`)
	s, err := New(db.Pool, Options{Table: fmt.Sprintf(`%s.Jobs; --`, db.Schema)})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO "Jobs; --" (kind, payload) VALUES ('k', '1')`)
	claimOne(t, s.Queue(every))
	if f, err := s.Figures(t.Context()); err != nil || len(f.Kinds) != 1 || f.Kinds[0].Running != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
