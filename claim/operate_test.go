package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

const deadJobs = `INSERT INTO jobs (kind, key, payload, headers, status, attempts, lease_token, last_error, finished_at, delivered)
	SELECT 'k' || g % 3, 'key' || g % 2, to_jsonb(g), '{"h": "v"}', 'dead', 5, 7, CASE WHEN g % 5 = 0 THEN '100% wrong' ELSE 'x' END,
	now() - g * interval '1 minute', '{a}' FROM generate_series(1, $1::int) g`

// Every filter chooses what it says, in the order of id, over many pages.
func TestListDead(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, deadJobs, 2500)
	insert(t, db, "k0", 5)
	s := newStore(t, db, Options{})
	at := time.Now()
	for _, c := range []struct {
		filter Filter
		sql    string
	}{
		{Filter{}, "true"},
		{Filter{Kind: "k1"}, "kind = 'k1'"},
		{Filter{Key: "key1", HasKey: true}, "key = 'key1'"},
		{Filter{HasKey: true}, "key = ''"},
		{Filter{Error: "100% w"}, "last_error = '100% wrong'"},
		{Filter{Error: "1000"}, "false"},
		{Filter{Since: at.Add(-20*time.Hour - 30*time.Second)}, "id <= 1200"},
		{Filter{Until: at.Add(-20*time.Hour - 30*time.Second), Kind: "k2"}, "id > 1200 AND kind = 'k2'"},
		{Filter{IDs: []int64{7, 3, 3, 2501, 99999}}, "id IN (3, 7)"},
		{Filter{IDs: []int64{3, 4, 5}, Kind: "k1"}, "id = 4"},
		{Filter{Limit: 1100}, "id <= 1100"},
	} {
		var got []int64
		if err := s.ListDead(t.Context(), c.filter, func(d DeadJob) error { got = append(got, d.ID); return nil }); err != nil {
			t.Fatal(err)
		}
		want := testdb.Column[int64](t, db, "SELECT id FROM jobs WHERE status = 'dead' AND "+c.sql+" ORDER BY id")
		if !slices.Equal(got, want) {
			t.Errorf("%+v lists %d jobs, want %d", c.filter, len(got), len(want))
		}
	}
	stop := errors.New("stop")
	if err := s.ListDead(t.Context(), Filter{}, func(DeadJob) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	d, ok, err := s.GetDead(t.Context(), 5)
	if got := fmt.Sprintf("%s %s %s %s %d %s %v", d.Kind, *d.Key, d.Payload, d.Headers, d.Attempts, d.LastError, d.Delivered); !ok || err != nil || got != `k2 key1 5 {"h": "v"} 5 100% wrong [a]` {
		t.Errorf("%s, %v, %v", got, ok, err)
	}
	if _, ok, err := s.GetDead(t.Context(), 2501); ok || err != nil {
		t.Errorf("a job that isn't dead: %v, %v", ok, err)
	}
}

// Requeue gives a full new round, keeps what was delivered and why it died, and nobody who held it can change it (B23).
func TestB23RequeueDead(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	db.Exec(t, `INSERT INTO jobs (kind, payload, attempts, max_attempts, delivered) VALUES ('k', '1', 4, 5, '{a}')`)
	l := claimOne(t, q)
	settle(t, q, []Lease{*l}, Outcome{Verdict: Dead, Error: "broken"})
	db.Exec(t, `UPDATE jobs SET max_attempts = 2`)
	if c, err := q.s.RequeueDead(t.Context(), Filter{}, true); err != nil || c.Changed != 1 || read(t, db, l.ID).Status != "dead" {
		t.Errorf("dry run: %+v, %v", c, err)
	}
	if c, err := q.s.RequeueDead(t.Context(), Filter{Kind: "k"}, false); err != nil || c != (Changed{Changed: 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	if r := read(t, db, l.ID); r.Status != "ready" || r.Attempts != 0 || r.Token != nil || *r.Error != "broken" || r.Finished {
		t.Errorf("%+v", r)
	}
	if lost := settle(t, q, []Lease{*l}, Outcome{Verdict: Done}); len(lost) != 1 {
		t.Error("the one who held it before could still finish it")
	}
	if again := claimOne(t, q); again.Attempt != 1 || !slices.Equal(again.Delivered, []string{"a"}) {
		t.Errorf("%+v", again)
	}
}

// Commands work in pages, count what they did, and say so when they are interrupted.
func TestChangeDeadInPages(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, deadJobs, 3500)
	insert(t, db, "k0", 1)
	s := newStore(t, db, Options{})
	if c, err := s.RequeueDead(t.Context(), Filter{Limit: 1200}, false); err != nil || c != (Changed{Changed: 1200}) {
		t.Errorf("limit: %+v, %v", c, err)
	}
	if c, err := s.DiscardDead(t.Context(), Filter{IDs: []int64{1, 1300, 1301, 3501, 70000}}, false); err != nil || c != (Changed{2, 2, 1}) {
		t.Errorf("ids: %+v, %v", c, err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM relay_closed_keys WHERE job IN (1300, 1301)`); n != 0 {
		t.Errorf("%d keys are still closed by jobs that are gone", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	db.Exec(t, `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify(TG_ARGV[0], ''); RETURN NULL; END $$;
		CREATE TRIGGER tell AFTER UPDATE ON jobs EXECUTE FUNCTION tell('`+db.Schema+`')`)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN "+db.Schema); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := conn.Conn().WaitForNotification(context.WithoutCancel(ctx))
		cancel()
		told <- err
	}()
	c, err := s.RequeueDead(ctx, Filter{}, false)
	if err := next(t, "the first page is told", told); err != nil {
		t.Fatal(err)
	}
	ready := testdb.One[int64](t, db, `SELECT count(*) FROM jobs WHERE status = 'ready' AND id > 1200 AND id < 3501`)
	if c.Changed != ready || (err == nil) != (ready == 2298) {
		t.Errorf("interrupted: %+v, %v; %d are ready", c, err, ready)
	}
}

// Cleaning removes done jobs older than the retention that a relay has finished, and nothing else (B29).
func TestB29Clean(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, lease_token, created_at, finished_at, run_at, leased_until, last_error)
		SELECT kind, to_jsonb(name), status, token, now() - interval '1 year', now() - age::interval, now() + run::interval, CASE WHEN status = 'running' THEN now() - interval '1 year' END,
		CASE WHEN status = 'dead' THEN 'x' END FROM (VALUES
		('k', 'old', 'done', 7, '2h', '-1y'), ('k', 'young', 'done', 7, '10m', '-1y'), ('k', 'old dead', 'dead', 7, '2h', '-1y'), ('k', 'ancient dead', 'dead', 7, '40d', '-1y'),
		('k', 'an old worker''s', 'done', NULL, '2h', '-1y'), ('theirs', 'not served', 'done', 7, '2h', '-1y'), ('k', 'waiting', 'ready', NULL, NULL, '-1y'),
		('k', 'running', 'running', 7, NULL, '-1y'), ('k', 'scheduled', 'ready', NULL, NULL, '1w')) v (kind, name, status, token, age, run)`)
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "k" })
	left := func() []string { return testdb.Column[string](t, db, `SELECT payload #>> '{}' FROM jobs ORDER BY id`) }
	all := left()
	for _, c := range []struct {
		done, dead time.Duration
		gone       []string
	}{
		{-1, 0, nil}, {3 * time.Hour, 0, nil}, {time.Hour, 0, []string{"old"}}, {time.Hour, 30 * 24 * time.Hour, []string{"ancient dead"}},
		{-1, time.Hour, []string{"old dead"}}, {0, 0, []string{"young"}},
	} {
		n, err := q.Clean(t.Context(), c.done, c.dead)
		all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(c.gone, name) })
		if got := left(); err != nil || n != int64(len(c.gone)) || !slices.Equal(got, all) {
			t.Fatalf("clean(%v, %v) removed %d, %v\nleft %q\nwant %q", c.done, c.dead, n, err, got, all)
		}
	}
}

// A backlog goes in batches, also when all finished at one moment, when jobs that stay lie between, and when two relays
// clean at once.
func TestB29CleanABacklog(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, lease_token, finished_at) SELECT 'k', '1', 'done', CASE WHEN g % 4 > 0 THEN 7 END, now() - interval '1 day' FROM generate_series(1, 9000) g;
		INSERT INTO jobs (kind, payload, status, lease_token, finished_at) SELECT 'k', '2', 'done', NULL, now() - interval '3 days' FROM generate_series(1, 6000) g;
		INSERT INTO jobs (kind, payload, status, lease_token, finished_at) SELECT 'k', '3', 'done', 7, now() - interval '1 hour' FROM generate_series(1, 10) g`)
	total := make(chan int64)
	for range 2 {
		q := newQueue(t, db, Options{})
		go func() {
			n, err := q.Clean(t.Context(), time.Minute, 0)
			if err != nil {
				t.Error(err)
			}
			total <- n
		}()
	}
	if n := <-total + <-total; n != 6760 {
		// What one holds the other skips; a later round takes what was left.
		more, err := newQueue(t, db, Options{}).Clean(t.Context(), time.Minute, 0)
		if n += more; n != 6760 || err != nil {
			t.Errorf("removed %d of 6760, %v", n, err)
		}
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs`); n != 8250 {
		t.Errorf("%d jobs left, want 8250", n)
	}
}

// What is too young at one call goes at a later one, although the position has moved.
func TestCleanComesBackForTheYoung(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	insert(t, db, "k", 20)
	drain(t, q)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, lease_token, last_error, finished_at) SELECT 'k', '1', 'dead', 7, 'x', now() - interval '1 day' FROM generate_series(1, 5)`)
	var removed int64
	eventually(t, "all are removed", func() bool {
		n, err := q.Clean(t.Context(), 300*time.Millisecond, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		removed += n
		return removed == 25
	})
}

// A dead job that is cleaned up takes the key that it closed with it; one that stays keeps its key closed.
func TestCleanReopensKeys(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, lease_token, finished_at)
		SELECT 'k', 'key ' || g, '1', 'dead', 1, now() - CASE WHEN g > 3 THEN interval '1 hour' ELSE interval '0' END FROM generate_series(1, 2000) g`)
	q := newQueue(t, db, Options{})
	eventually(t, "the old ones are gone", func() bool {
		if _, err := q.Clean(t.Context(), 0, time.Minute); err != nil {
			t.Fatal(err)
		}
		return testdb.One[int](t, db, `SELECT count(*) FROM jobs`) == 3
	})
	if got := testdb.One[string](t, db, `SELECT string_agg(key, ', ' ORDER BY key) FROM relay_closed_keys`); got != "key 1, key 2, key 3" {
		t.Errorf("closed: %s", got)
	}
}
