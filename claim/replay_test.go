package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

// history is n done jobs, finished a minute apart but in the reverse order of their ids, of the kinds k0 and k1, with ten
// keys; every tenth is dead instead. Relays own both kinds.
const history = `INSERT INTO jobs (kind, key, payload, body, headers, priority, status, attempts, max_attempts, lease_token, last_error, run_at, created_at, finished_at, delivered)
	SELECT 'k' || g % 2, 'key' || g % 10, CASE WHEN g % 3 > 0 THEN jsonb_build_object('n', g) END, CASE WHEN g % 3 = 0 THEN 'body'::bytea END, '{"h": 1}', g % 4, CASE WHEN g % 10 = 5 THEN 'dead' ELSE 'done' END, 3, 7, 7,
	CASE WHEN g % 10 = 5 THEN 'x' END, now() - interval '3 days', CASE WHEN g % 4 > 0 THEN now() - interval '4 days' END, now() - interval '1 day' - g * interval '1 minute', '{a}' FROM generate_series(1, $1::int) g`

func newHistory(t testing.TB, n int) (*testdb.DB, *Store) {
	t.Helper()
	db := testdb.New(t)
	db.Exec(t, history, n)
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('k0', 100), ('k1', 100)`)
	return db, newStore(t, db, Options{})
}

// replay runs one that must go well.
func replay(t testing.TB, s *Store, r Replay) Replayed {
	t.Helper()
	if r.Rate == 0 {
		r.Rate = RateMost
	}
	done, err := s.Replay(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// originals are the jobs that copies were made of, in the order of the copies.
func originals(t testing.TB, db *testdb.DB) []int64 {
	t.Helper()
	return testdb.Column[int64](t, db, `SELECT replay_of FROM jobs WHERE replay_of IS NOT NULL ORDER BY id`)
}

func chosen(t testing.TB, db *testdb.DB, where string) []int64 {
	t.Helper()
	return testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE status = 'done' AND replay_of IS NULL AND `+where+` ORDER BY id`)
}

func text(s string) *string { return &s }

func ago(d time.Duration) Moment { return Moment{d.String(), time.Now().Add(-d)} }

// Each filter chooses what it says, and the copies come in the order of the originals.
func TestReplayFilters(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 1200)
	const half = 24*time.Hour + 600*time.Minute + 30*time.Second
	for _, c := range []struct {
		filter ReplayFilter
		where  string
	}{
		{ReplayFilter{}, "true"},
		{ReplayFilter{Kind: "k1"}, "kind = 'k1'"},
		{ReplayFilter{Key: text("key4")}, "key = 'key4'"},
		{ReplayFilter{Key: text("")}, "false"},
		{ReplayFilter{Since: ago(half)}, "id <= 600"},
		{ReplayFilter{Until: ago(half), Kind: "k0"}, "id > 600 AND kind = 'k0'"},
		{ReplayFilter{IDs: []int64{7, 3, 3, 5, 99999}}, "id IN (3, 7)"},
		{ReplayFilter{IDs: []int64{3, 4, 6}, Kind: "k1"}, "id = 3"},
		{ReplayFilter{Limit: 700}, "id <= 778"},
		{ReplayFilter{Kind: "no such"}, "false"},
	} {
		want := chosen(t, db, c.where)
		done := replay(t, s, Replay{Filter: c.filter})
		if got := originals(t, db); !slices.Equal(got, want) {
			t.Errorf("%+v copies %d jobs, want %d, in the order of id", c.filter, len(got), len(want))
		}
		if done.Copied != int64(len(want)) || done.InAll != done.Copied {
			t.Errorf("%+v: %+v, want %d copied", c.filter, done, len(want))
		}
		db.Exec(t, `DELETE FROM jobs WHERE replay_of IS NOT NULL`)
	}
}

// A copy is what its original was when it was enqueued, due now.
func TestReplayCopiesWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 300)
	replay(t, s, Replay{})
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs c JOIN jobs j ON j.id = c.replay_of
		WHERE (c.kind, c.key, c.payload, c.body, c.headers, c.priority, c.max_attempts) IS NOT DISTINCT FROM (j.kind, j.key, j.payload, j.body, j.headers, j.priority, j.max_attempts)
		AND c.created_at = coalesce(j.created_at, j.run_at) AND c.run_at BETWEEN now() - interval '1 minute' AND now() AND c.status = 'ready' AND c.attempts = 0
		AND c.lease_token IS NULL AND c.delivered IS NULL AND c.finished_at IS NULL AND c.last_error IS NULL AND NOT c.alone`); n != 270 {
		t.Errorf("%d of 270 copies are as they should be", n)
	}
	drain(t, s.Queue(every))
	if done := replay(t, s, Replay{Name: "second"}); done.Copied != 270 {
		t.Errorf("copies of copies: %+v", done)
	}
}

// Figures count a copy from when it was made, not from when its original was enqueued.
func TestFiguresOfCopies(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 10)
	replay(t, s, Replay{})
	db.Exec(t, `UPDATE jobs SET attempts = 1, last_error = 'x' WHERE replay_of IS NOT NULL`)
	f, err := s.Figures(t.Context())
	if err != nil || len(f.Kinds) != 2 || f.Kinds[0].Due == 0 || f.Kinds[0].OldestDueSeconds > 3600 {
		t.Errorf("%+v, %v", f, err)
	}
}

// Interrupted anywhere, the same replay goes on and repeats nothing; with other filters it is refused; finished, it
// wants to be told to run again.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 2000)
	want := chosen(t, db, "true")
	runs := 0
	for {
		ctx, cancel := context.WithCancel(t.Context())
		done, err := s.Replay(ctx, Replay{Name: "n", Rate: 5000, Filter: ReplayFilter{Until: Moment{Written: "soon", Time: time.Now().Add(time.Hour)}}, Progress: func(r Replayed) {
			if r.Copied >= 500 {
				cancel()
			}
		}})
		cancel()
		if runs++; err == nil {
			if done.InAll != int64(len(want)) {
				t.Errorf("%+v, want %d in all", done, len(want))
			}
			break
		}
		if !errors.Is(err, context.Canceled) || done.Copied < 500 || done.Copied > 1000 || runs > len(want)/500 {
			t.Fatalf("%+v, %v", done, err)
		}
		// What is done from now on isn't a part of it, although this run's own "now" is later.
		db.Exec(t, `INSERT INTO jobs (kind, payload, status) VALUES ('k0', '1', 'done')`)
	}
	if got := originals(t, db); !slices.Equal(got, want) || runs < 3 {
		t.Errorf("%d copies after %d runs, want %d and each once", len(got), runs, len(want))
	}
	for name, c := range map[string]struct {
		r    Replay
		says string
	}{
		"finished": {Replay{Filter: ReplayFilter{Until: Moment{Written: "soon"}}}, "--again"},
		"kind":     {Replay{Filter: ReplayFilter{Until: Moment{Written: "soon"}, Kind: "k0"}}, "kind was not given and is k0"},
		"until":    {Replay{Filter: ReplayFilter{Until: Moment{Written: "later"}}}, "until was soon and is later"},
		"id":       {Replay{Filter: ReplayFilter{Until: Moment{Written: "soon"}, IDs: []int64{4, 5}}}, "id was not given and is 4,5"},
		"rate":     {Replay{Rate: -1}, "rate"},
	} {
		c.r.Name = "n"
		if _, err := s.Replay(t.Context(), c.r); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again := replay(t, s, Replay{Name: "n", Again: true, Filter: ReplayFilter{Until: Moment{Written: "soon"}}}); again.Copied != int64(len(want)+runs-1) {
		t.Errorf("again: %+v", again)
	}
}

// Of several processes on one replay each job is copied by one.
func TestReplayTwoAtOnce(t *testing.T) {
	t.Parallel()
	db, _ := newHistory(t, 3000)
	want := chosen(t, db, "true")[:1400] // few enough for the smallest window: nobody sends them
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	copied := make([]int64, 4)
	for i := range copied {
		all.Go(func() {
			done, err := newStore(t, db, Options{}).Replay(ctx, Replay{Rate: []int{2000, 3000, 1230, 777}[i], Filter: ReplayFilter{Limit: len(want)}})
			if err != nil {
				t.Error(err)
			}
			copied[i] = done.Copied
		})
	}
	all.Wait()
	if got := originals(t, db); !slices.Equal(got, want) {
		t.Errorf("%d copies, want %d in order", len(got), len(want))
	}
	if sum := copied[0] + copied[1] + copied[2] + copied[3]; sum != int64(len(want)) {
		t.Errorf("they copied %v", copied)
	}
}

// Broken connections cost time and nothing else: an answer that was lost is found out.
func TestReplayOverBrokenConnections(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 3000)
	want := chosen(t, db, "true")
	var cut int
	stop := during(t, func(ctx context.Context) {
		conn, err := pgx.ConnectConfig(ctx, db.Config)
		if err != nil {
			return
		}
		defer conn.Close(context.Background())
		for cut < 20 && pause(ctx, 20*time.Millisecond) == nil {
			var n int
			if err := conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND (state <> 'idle' OR query ILIKE 'commit')`, db.Schema).Scan(&n); err != nil {
				return
			}
			cut += n
		}
	})
	done, err := s.Replay(t.Context(), Replay{Rate: 3000})
	stop()
	db.Pool.Reset() // it may hold connections that were cut
	if err != nil || done.Copied != int64(len(want)) || done.InAll != done.Copied {
		t.Errorf("%+v, %v; want %d", done, err, len(want))
	}
	if got := originals(t, db); !slices.Equal(got, want) || cut == 0 {
		t.Errorf("%d copies after %d cuts, want %d and each once", len(got), cut, len(want))
	}
}

// Kinds that relays don't own whole are refused, also when the share changes in the middle.
func TestReplayWantsWholeKinds(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 1000)
	refused := func(what, says string, r Replay) {
		t.Helper()
		done, err := s.Replay(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), says) || done.Copied > 900 {
			t.Errorf("%s: %+v, %v", what, done, err)
		}
	}
	db.Exec(t, `UPDATE relay_kinds SET share = 99 WHERE kind = 'k1'`)
	refused("a share of 99", `relay kinds set k1 100`, Replay{})
	refused("dry run", `relays own 99 % of the kind "k1"`, Replay{DryRun: true})
	db.Exec(t, `DELETE FROM relay_kinds WHERE kind = 'k1'`)
	refused("never claimed", `no relay has ever claimed the kind "k1"`, Replay{Name: "b"})
	if n := len(originals(t, db)); n != 0 {
		t.Errorf("%d copies", n)
	}
	replay(t, s, Replay{Filter: ReplayFilter{Kind: "k0"}})
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('k1', 100)`)
	once := sync.OnceFunc(func() { db.Exec(t, `UPDATE relay_kinds SET share = 50 WHERE kind = 'k1'`) })
	refused("in the middle", "relays own 50 %", Replay{Name: "c", Filter: ReplayFilter{Kind: "k1"}, Progress: func(r Replayed) {
		if r.Copied > 0 {
			once()
		}
	}})
	db.Exec(t, `UPDATE relay_kinds SET share = 100`)
	replay(t, s, Replay{Name: "c", Filter: ReplayFilter{Kind: "k1"}})
	if got := len(originals(t, db)); got != 900 {
		t.Errorf("%d copies, want 900", got)
	}
}

// A dry run finds what a run would, and changes nothing.
func TestReplayDryRun(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 1000)
	dump := func() string {
		return testdb.One[string](t, db, `SELECT concat((SELECT string_agg(j::text || xmin, E'\n' ORDER BY id) FROM jobs j), (SELECT string_agg(r::text || xmin, E'\n') FROM relay_replays r),
			(SELECT string_agg(k::text || xmin, E'\n') FROM relay_kinds k))`)
	}
	before := dump()
	done := replay(t, s, Replay{DryRun: true, Filter: ReplayFilter{Limit: 500}})
	if after := dump(); after != before {
		t.Error("the dry run changed something")
	}
	if done.Copied != 500 || done.InAll != 0 || len(done.Kinds) != 2 {
		t.Fatalf("%+v", done)
	}
	for _, k := range done.Kinds {
		var n, first, last int64
		var from, to time.Time
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*), min(id), max(id), min(finished_at), max(finished_at) FROM (SELECT * FROM jobs WHERE status = 'done' ORDER BY id LIMIT 500) x WHERE kind = $1`, k.Kind).Scan(&n, &first, &last, &from, &to); err != nil {
			t.Fatal(err)
		}
		if k.Jobs != n || k.FirstID != first || k.LastID != last || !k.First.Equal(from) || !k.Last.Equal(to) {
			t.Errorf("%+v, want %d jobs, %d to %d, %v to %v", k, n, first, last, from, to)
		}
	}
	if run := replay(t, s, Replay{Filter: ReplayFilter{Limit: 500}}); run.Copied != done.Copied {
		t.Errorf("the run copied %d, the dry run said %d", run.Copied, done.Copied)
	}
}

// Batches are cut by their bytes.
func TestReplayBatchesByBytes(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 0)
	db.Exec(t, `INSERT INTO jobs (kind, body, status) SELECT 'k0', convert_to((SELECT string_agg(md5(x::text), '') FROM generate_series(g * 100000, g * 100000 + 31250) x), 'UTF8'), 'done' FROM generate_series(1, 9) g`)
	var steps []int64
	replay(t, s, Replay{Progress: func(r Replayed) { steps = append(steps, r.Copied) }})
	if got := fmt.Sprint(slices.Compact(steps)); got != "[0 4 8 9]" {
		t.Errorf("batches end at %s", got)
	}
}
