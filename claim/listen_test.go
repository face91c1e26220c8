package claim

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// heard runs a listener and hands on what it says.
func heard(t *testing.T, l *Listener) (wakes chan struct{}, ups chan bool) {
	wakes, ups = make(chan struct{}, 100), make(chan bool, 100)
	during(t, func(ctx context.Context) {
		l.Run(ctx, func() { wakes <- struct{}{} }, func(up bool) { ups <- up })
	})
	return wakes, ups
}

func next[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
		panic("unreachable")
	}
}

// A listener wakes at once after it has connected, and at each notification; after its connection was ended it comes
// back and wakes again, since what came in between was told to nobody (B27).
func TestListener(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	channel := "listen_" + db.Schema[len(db.Schema)-8:]
	wakes, ups := heard(t, &Listener{URL: db.URL, Table: "any." + channel})
	if !next(t, "up", ups) {
		t.Error("the first word is down")
	}
	next(t, "the wake after connecting", wakes)
	db.Exec(t, "SELECT pg_notify($1, '')", channel+"_ready")
	next(t, "the wake of a notification", wakes)
	db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1", `LISTEN "`+channel+`_ready"`)
	if next(t, "down", ups) {
		t.Error("up again without having been down")
	}
	if !next(t, "up again", ups) {
		t.Error("down twice")
	}
	next(t, "the wake after reconnecting", wakes)
}

// A connection that became silent without a word, and a session that doesn't listen any more, are noticed by the
// listener itself.
func TestB27ListenerChecksItself(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	channel := "check_" + db.Schema[len(db.Schema)-8:]
	wakes, ups := heard(t, &Listener{URL: db.URL, Table: channel, Check: 200 * time.Millisecond})
	next(t, "up", ups)
	next(t, "wake", wakes)
	if testdb.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN "`+channel+`%'`) == 1 {
		eventually(t, "it checks", func() bool {
			return testdb.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%' || $1 || '_ready%pg_listening_channels%' AND pid <> pg_backend_pid()`, channel) == 1
		})
	}
	select {
	case up := <-ups:
		t.Errorf("up(%v) although nothing has happened", up)
	default:
	}
}

// A server that accepts and never answers holds the listener for a bounded time, and Run ends when it is told to.
func TestListenerEndsWhileConnecting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	(&Listener{URL: "postgres://x@" + l.Addr().String() + "/x?sslmode=disable"}).Run(ctx, func() { t.Error("woke") }, func(bool) { t.Error("up") })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("ended after %v", took)
	}
}

// Figures count by kind and status, with the age of the oldest due job.
func TestFigures(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, priority, run_at) SELECT 'a', '1', g % 2, now() - interval '10 s' FROM generate_series(1, 7) g;
		INSERT INTO jobs (kind, payload, run_at) SELECT 'a', '1', now() + interval '1 day' FROM generate_series(1, 3);
		INSERT INTO jobs (kind, payload, status, attempts, leased_until) SELECT 'b', '1', 'running', 1, now() FROM generate_series(1, 2);
		INSERT INTO jobs (kind, payload, status, last_error) SELECT 'b', '1', 'dead', 'x' FROM generate_series(1, 1500);
		INSERT INTO jobs (kind, payload, status, last_error) SELECT 'c', '1', 'dead', 'x' FROM generate_series(1, 4);
		INSERT INTO jobs (kind, payload, status, last_error) SELECT 'c', '1', 'done', 'kept by an old worker' FROM generate_series(1, 4);
		INSERT INTO jobs (kind, payload, status) SELECT 'd', '1', 'done' FROM generate_series(1, 4);
		INSERT INTO jobs (kind, payload) SELECT 'e', '1' FROM generate_series(1, 2500);
		INSERT INTO jobs (kind, payload, created_at, run_at) VALUES ('scheduled', '1', now() - interval '1 day', now() - interval '5 s');
		INSERT INTO jobs (kind, payload, created_at, run_at, last_error) VALUES ('paused', '1', now() - interval '1 hour', now() + interval '20 s', 'kafka:a: paused');
		INSERT INTO jobs (kind, payload, created_at, run_at, attempts, last_error) VALUES ('retrying', '1', now() - interval '1 hour', now() + interval '20 s', 1, 'no');
		INSERT INTO jobs (kind, payload, created_at, run_at, attempts, replay_of) VALUES ('copied', '1', now() - interval '1 day', now() - interval '5 s', 1, 1);
		INSERT INTO jobs (kind, payload, created_at, run_at, attempts) VALUES ('retried', '1', now() - interval '1 day', now() - interval '5 s', 1)`)
	s := newStore(t, db, Options{})
	f, err := s.Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []KindFigures{{Kind: "a", Ready: 10, Due: 7, OldestDueSeconds: 10}, {Kind: "b", Running: 2, Dead: 1500}, {Kind: "c", Dead: 4},
		{Kind: "copied", Ready: 1, Due: 1, OldestDueSeconds: 5}, {Kind: "e", Ready: 2500, Due: 2500}, {Kind: "paused", Ready: 1, OldestDueSeconds: 3600}, {Kind: "retried", Ready: 1, Due: 1, OldestDueSeconds: 86400}, {Kind: "retrying", Ready: 1}, {Kind: "scheduled", Ready: 1, Due: 1, OldestDueSeconds: 5}}
	for i, k := range f.Kinds {
		if i >= len(want) || k.OldestDueSeconds < want[i].OldestDueSeconds || k.OldestDueSeconds > want[i].OldestDueSeconds+60 {
			t.Errorf("%+v", k)
			continue
		}
		if k.OldestDueSeconds = want[i].OldestDueSeconds; k != want[i] {
			t.Errorf("got  %+v\nwant %+v", k, want[i])
		}
	}
	if len(f.Kinds) != len(want) {
		t.Errorf("%d kinds, want %d", len(f.Kinds), len(want))
	}
	for _, k := range want { // both pages of figures say the same of an age
		byside := statsOf(t, s, k.Kind, time.Hour)
		if age := max(byside.Relay.OldestDueSeconds, byside.Others.OldestDueSeconds); age < k.OldestDueSeconds || age > k.OldestDueSeconds+60 {
			t.Errorf("%s: the age by side is %v, want %v", k.Kind, age, k.OldestDueSeconds)
		}
	}
}

// The holder of an old snapshot is named; the figures' own statements are none.
func TestFiguresNameTheOldestSnapshot(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := newStore(t, db, Options{})
	db.Config.RuntimeParams["application_name"] = "the holder of " + db.Schema
	hold(t, db)
	eventually(t, "the snapshot is seen", func() bool {
		f, err := s.Figures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Other tests hold older ones.
		return f.OldestSnapshot != nil && f.OldestSnapshot.AgeSeconds >= 1 && f.OldestSnapshot.PID > 0 &&
			strings.HasPrefix(f.OldestSnapshot.String(), "process ")
	})
}
