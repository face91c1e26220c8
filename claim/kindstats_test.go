package claim

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

// statsOf reads the figures of one kind.
func statsOf(t testing.TB, s *Store, kind string, window time.Duration) KindStats {
	t.Helper()
	all, err := s.KindStats(t.Context(), window)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Kind == kind {
			return k
		}
	}
	t.Fatalf("no kind %q in %+v", kind, all)
	return KindStats{}
}

// What relays finished carries a token, what others finished doesn't; only what finished within the window and since the
// share was changed counts.
func TestKindStats(t *testing.T) {
	t.Parallel()
	onEach(t, testKindStats)
}

func testKindStats(t *testing.T, newDB func(testing.TB) *testdb.DB) {
	db := newDB(t)
	s := newStore(t, db, Options{})
	finished := func(n int, status, token, key, ago string) {
		t.Helper()
		db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, lease_token, finished_at)
			SELECT 'k', `+key+`, '1', $2, $3::text::bigint, now() - $4::text::interval FROM generate_series(1, $1::int) g`,
			n, status, orNone(token), ago)
	}
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('k', 25, now() - interval '1 hour'), ('empty', 0, now())`)
	finished(10, "done", "7", "'a'", "1 minute")
	finished(2, "dead", "7", "'b'", "1 minute")
	finished(30, "done", "", "NULL", "2 minutes")
	finished(1, "dead", "", "'c'", "2 minutes")
	finished(99, "done", "7", "NULL", "11 minutes")
	db.Exec(t, `INSERT INTO jobs (kind, payload) SELECT 'foreign', '1' FROM generate_series(1, 3)`)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, run_at, priority) SELECT 'k', 'w' || g, '1', now() - interval '30 s', g % 3 FROM generate_series(1, 400) g`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, leased_until) SELECT 'k', '1', 'running', now() FROM generate_series(1, 5)`)
	owned := testdb.One[int64](t, db, `SELECT count(*) FROM jobs WHERE kind = 'k' AND status = 'ready' AND relay_owns(kind, key, id)`)

	k := statsOf(t, s, "k", 10*time.Minute)
	want := SideStats{Done: 10, Dead: 2, Keys: 2, Ready: owned}
	if got := sides(k.Relay); got != want || owned < 50 || owned > 150 {
		t.Errorf("relay: got %+v, want %+v", got, want)
	}
	if got, want := sides(k.Others), (SideStats{Done: 30, Dead: 1, Keys: 31, Ready: 400 - owned}); got != want {
		t.Errorf("others: got %+v, want %+v", got, want)
	}
	if k.Share == nil || k.Share.Percent != 25 || k.Capped || k.ReadyCapped {
		t.Errorf("got %+v", k)
	}
	if got := k.At.Sub(k.Since); got != 10*time.Minute {
		t.Errorf("looked back for %v", got)
	}
	for name, at := range map[time.Duration]time.Time{time.Minute: k.Relay.Oldest, 2 * time.Minute: k.Others.Oldest} {
		if age := k.At.Sub(at); age < name || age > name+time.Minute {
			t.Errorf("the oldest of a side is %v old, want %v", age, name)
		}
	}
	if age := k.Relay.OldestDueSeconds; age < 30 || age > 90 {
		t.Errorf("oldest due: %v s, want 30", age)
	}
	if f := statsOf(t, s, "foreign", time.Minute); f.Share != nil || f.Others.Ready != 3 || f.Relay.Ready != 0 {
		t.Errorf("a kind without a row: %+v", f)
	}
	if e := statsOf(t, s, "empty", time.Minute); e.Share == nil || e.Share.Percent != 0 || sides(e.Relay) != (SideStats{}) {
		t.Errorf("a kind without jobs: %+v", e)
	}

	setShare(t, s, "k", 50)
	if k := statsOf(t, s, "k", 10*time.Minute); k.Relay.Done+k.Others.Done != 0 || k.Since != k.Share.ChangedAt {
		t.Errorf("after a change of the share: %+v", k)
	}
	finished(4, "done", "7", "NULL", "0")
	setShare(t, s, "k", 50)
	if k := statsOf(t, s, "k", 10*time.Minute); k.Relay.Done != 4 {
		t.Errorf("after setting the share that it has: %+v", k)
	}
}

func orNone(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// sides leaves out the times.
func sides(s SideStats) SideStats {
	s.Oldest, s.OldestDueSeconds = time.Time{}, 0
	return s
}

// However many jobs there are, the figures look at so many rows of each kind.
func TestPlansOfKindStats(t *testing.T) {
	t.Parallel()
	onEach(t, testPlansOfKindStats)
}

func testPlansOfKindStats(t *testing.T, newDB func(testing.TB) *testdb.DB) {
	db := newDB(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('k', 25, now() - interval '1 day')`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, finished_at, lease_token)
		SELECT 'k', '1', 'done', now() - (g * 7919 % 60000) * interval '10 milliseconds', nullif(g % 4, 0) FROM generate_series(1, 60000) g`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, finished_at) SELECT k, '1', 'done', now() FROM generate_series(1, 30000), unnest(ARRAY['j', 'l']) k`)
	db.Exec(t, shuffledJobs, 60_000)
	s := newStore(t, db, Options{})
	for _, sql := range []string{"VACUUM ANALYZE jobs", noStatistics} {
		db.Exec(t, sql)
		// A row and its share of the index; what waits also asks for the share.
		each(t, "finished, "+sql, KindRows*3/2, func(further ...string) explained {
			return explain(t, db, s.sql.claimSettings, s.sql.kindFinished, []any{"k", (10 * time.Minute).Microseconds(), nil, int32(KindRows)}, further...)
		})
		each(t, "ready, "+sql, KindRows*7/2, func(further ...string) explained {
			return explain(t, db, s.sql.claimSettings, s.sql.kindReady, []any{"k", int32(KindRows)}, further...)
		})
	}
	k := statsOf(t, s, "k", 10*time.Minute)
	if n := k.Relay.Done + k.Others.Done; n != KindRows || !k.Capped || !k.ReadyCapped || k.Relay.Ready+k.Others.Ready != KindRows {
		t.Errorf("counted %d finished ones, want %d and to be told so: %+v", n, KindRows, k)
	}
	if part := float64(k.Relay.Done) / KindRows; part < 0.7 || part > 0.8 {
		t.Errorf("the relays' part is %v, want 0.75", part)
	}
	if back := k.At.Sub(k.Since); back < time.Minute || back > 3*time.Minute {
		t.Errorf("looked back for %v, want 100 s", back)
	}
}

func setShare(t testing.TB, s *Store, kind string, percent int) Switch {
	t.Helper()
	sw, err := s.SetShare(t.Context(), kind, percent)
	if err != nil {
		t.Fatal(err)
	}
	return sw
}

func TestSetShare(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := newStore(t, db, Options{})
	for _, c := range []struct {
		percent int
		want    Switch
	}{{5, Switch{Was: 5, New: true}}, {50, Switch{Was: 5}}, {50, Switch{Was: 50}}, {0, Switch{Was: 50}}} {
		got := setShare(t, s, "k*", c.percent)
		if got.Was != c.want.Was || got.New != c.want.New || got.Older != nil {
			t.Errorf("set to %d: got %+v, want %+v", c.percent, got, c.want)
		}
		shares, err := s.Shares(t.Context())
		if err != nil || len(shares) != 1 || shares[0].Kind != "k*" || shares[0].Percent != c.percent {
			t.Errorf("shares after it was set to %d: %+v, %v", c.percent, shares, err)
		}
	}
	if _, err := s.SetShare(t.Context(), "k*", 101); err == nil {
		t.Error("a share of 101 is taken")
	}
}

// SetShare returns once the claims that began before it have ended, and doesn't wait for those that only read.
func TestSetShareWaitsForClaims(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := newStore(t, db, Options{})
	insert(t, db, "k", 2)
	begin := func(sql string) pgx.Tx {
		t.Helper()
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	begin(`SELECT FROM jobs`)
	if start := time.Now(); len(setShare(t, s, "k", 10).Older) > 0 || time.Since(start) >= claimsEnd {
		t.Errorf("waited %v for somebody who only reads", time.Since(start))
	}
	held := begin(`SELECT id FROM jobs LIMIT 1 FOR UPDATE SKIP LOCKED`)
	sw := setShare(t, s, "k", 20)
	if pid := int(held.Conn().PgConn().PID()); len(sw.Older) != 1 || sw.Older[0] != pid {
		t.Errorf("an open transaction that claims: got %v, want process %d named", sw.Older, pid)
	}
	set := make(chan Switch, 1)
	go func() {
		sw, err := s.SetShare(t.Context(), "k", 30)
		if err != nil {
			t.Error(err)
		}
		set <- sw
	}()
	eventually(t, "the share is set", func() bool {
		return testdb.One[int](t, db, `SELECT share FROM relay_kinds`) == 30
	})
	select {
	case <-set:
		t.Fatal("it didn't wait for a claim under way")
	case <-time.After(100 * time.Millisecond):
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sw := <-set; sw.Older != nil {
		t.Errorf("the claim has ended, and yet %+v", sw)
	}
}
