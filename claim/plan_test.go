package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// explained is what EXPLAIN (ANALYZE, BUFFERS) says of a statement.
type explained struct {
	buffers int // pages touched, by execution
	rows    int
	nodes   []string
}

type planNode struct {
	Type   string     `json:"Node Type"`
	Join   string     `json:"Join Type"`
	Index  string     `json:"Index Name"`
	Hit    int        `json:"Shared Hit Blocks"`
	Read   int        `json:"Shared Read Blocks"`
	Rows   float64    `json:"Actual Rows"`
	Childs []planNode `json:"Plans"`
}

// explain runs a statement under its settings, rolls it back and says what it read. Further settings come last.
func explain(t testing.TB, db *testdb.DB, settings, sql string, args []any, further ...string) explained {
	t.Helper()
	ctx := t.Context()
	config := db.Config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	must := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	must("BEGIN ISOLATION LEVEL READ COMMITTED")
	must(strings.ReplaceAll(strings.ReplaceAll(settings, "$1", "'30000'"), "$2", "'off'"))
	for _, set := range further {
		must("SET LOCAL " + set)
	}
	must("PREPARE statement AS " + sql)
	places := make([]string, len(args))
	for i := range args {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	call := "EXECUTE statement"
	if len(args) > 0 {
		call += "(" + strings.Join(places, ", ") + ")"
	}
	var text string
	if err := conn.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+call, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	must("ROLLBACK")
	var out []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	e := explained{buffers: out[0].Plan.Hit + out[0].Plan.Read, rows: int(out[0].Plan.Rows)}
	e.walk(out[0].Plan)
	return e
}

func (e *explained) walk(n planNode) {
	e.nodes = append(e.nodes, strings.TrimSpace(n.Type+" "+n.Index))
	for _, c := range n.Childs {
		e.walk(c)
	}
}

// explainClaim explains what the queue's next claim would be.
func explainClaim(t testing.TB, q *Queue, db *testdb.DB, further ...string) explained {
	t.Helper()
	if err := q.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := q.plan(q.ask(open))
	args := append(p.args(), q.s.opt.BatchBytes, q.s.opt.Lease.Microseconds(), int64(1), []int64(nil), false)
	return explain(t, db, q.s.sql.claimSettings, q.s.sql.claim, args, further...)
}

// explainKeys explains what the queue's next walk from key to key would be.
func explainKeys(t testing.TB, q *Queue, db *testdb.DB, further ...string) explained {
	t.Helper()
	if err := q.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := q.planKeys(q.ask(open))
	args := append(w.args(q.s.opt.BatchSize), q.s.opt.BatchBytes, q.s.opt.Lease.Microseconds(), int64(1), []int64(nil), false, false)
	return explain(t, db, q.s.sql.claimSettings, q.s.sql.claimKeys, args, further...)
}

// Ways to plan, each of which must give the same walk.
var planModes = map[string][]string{
	"custom":  nil,
	"generic": {"plan_cache_mode = force_generic_plan"},
}

const (
	waitingJobs = `INSERT INTO jobs (kind, payload, run_at) SELECT 'k', '{"n": 1}', now() - interval '1 hour' + g * interval '1 millisecond' FROM generate_series(1, $1::int) g`
	// The same in no order: a walk of the index then looks dear to the planner, and sorting all of the kind cheap.
	shuffledJobs = `INSERT INTO jobs (kind, payload, run_at) SELECT 'k', '{"n": 1}', now() - interval '1 hour' + (g * 7919 % $1::int) * interval '1 millisecond' FROM generate_series(1, $1::int) g`
	// Nothing here may depend on when autovacuum or autoanalyze happen to come by.
	noAutovacuum = `ALTER TABLE jobs SET (autovacuum_enabled = off)`
	noStatistics = `DELETE FROM pg_statistic WHERE starelid = 'jobs'::regclass`
	// perJob is how many pages claiming or settling a job may touch: two descents of an index, the row, and after a vacuum
	// the visibility map, for the lock and for the change.
	perJob = 16
)

// bad are the ways to the table that grow with it.
var bad = regexp.MustCompile("^(Seq Scan|Bitmap|Hash|Merge Join|.*jobs_(ready|running)_idx)")

// each checks a statement under every way to plan it.
func each(t *testing.T, what string, most int, explain func(further ...string) explained) {
	t.Helper()
	for name, further := range planModes {
		e := explain(further...)
		if e.buffers > most {
			t.Errorf("%s, %s plan: %d buffers, want at most %d: %v", what, name, e.buffers, most, e.nodes)
		}
		// With a small table a bad plan reads little as well.
		if i := slices.IndexFunc(e.nodes, bad.MatchString); i >= 0 {
			t.Errorf("%s, %s plan: %s in %v", what, name, e.nodes[i], e.nodes)
		}
	}
}

// With 100,000 jobs waiting every statement reads in proportion to its batch, with whatever statistics.
func TestPlansWithABacklog(t *testing.T) {
	t.Parallel()
	onEach(t, testPlansWithABacklog)
}

func testPlansWithABacklog(t *testing.T, newDB func(testing.TB) *testdb.DB) {
	db := newDB(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, shuffledJobs, 100_000)
	for _, c := range []struct{ name, sql string }{
		{"never analyzed", ""}, {"vacuumed", "VACUUM jobs"}, {"analyzed", "ANALYZE jobs"}, {"statistics gone", noStatistics},
	} {
		if c.sql != "" {
			db.Exec(t, "VACUUM jobs") // what earlier turns have rolled back
			db.Exec(t, c.sql)
		}
		q := newQueue(t, db, Options{})
		each(t, "claim, "+c.name, 500*perJob, func(further ...string) explained { return explainClaim(t, q, db, further...) })
		each(t, "pairs, "+c.name, 20, func(further ...string) explained {
			return explain(t, db, q.s.sql.claimSettings, q.s.sql.pairs, nil, further...)
		})
	}
}

// The statements that change jobs by id go through the primary key, also where a table that was adopted has an index on
// running rows that fits a part of the predicate.
func TestPlansOfSettling(t *testing.T) {
	t.Parallel()
	db := adopted(t, 20_000)
	q := newQueue(t, db, Options{})
	db.Exec(t, waitingJobs, 10_000)
	q.Expect("k")
	leases, outcomes := []Lease{}, []Outcome{}
	for len(leases) < 5000 {
		leases = append(leases, claim(t, q)...)
	}
	token := leases[0].Token
	for i := range leases {
		if l := &leases[i]; l.Token == token {
			outcomes = append(outcomes, Outcome{Lease: l, Error: "x", Delivered: []string{"a"}})
		}
	}
	deleting := newStore(t, db, Options{DeleteDone: true})
	for _, sql := range []string{"", noStatistics} {
		if sql != "" {
			db.Exec(t, sql)
		}
		for _, v := range []Verdict{Done, Retry, Dead, Release} {
			for i := range outcomes {
				outcomes[i].Verdict = v
			}
			g := q.s.group(outcomes)[0]
			// More than a claim: done and retry write new index entries.
			each(t, v.String(), 500*3*perJob, func(further ...string) explained {
				return explain(t, db, q.s.sql.settleSettings, g.sql, g.args, further...)
			})
		}
		for i := range outcomes {
			outcomes[i].Verdict = Done
		}
		g := deleting.group(outcomes)[0]
		each(t, "done, deleting", 500*perJob, func(further ...string) explained {
			return explain(t, db, q.s.sql.settleSettings, g.sql, g.args, further...)
		})
		ids := columnsOf(pointers(outcomes)).ids
		each(t, "extend", 500*2*perJob, func(further ...string) explained {
			return explain(t, db, q.s.sql.settleSettings, q.s.sql.extend, []any{ids, token, int64(1000)}, further...)
		})
		each(t, "reap", 500*2*perJob, func(further ...string) explained {
			return explain(t, db, q.s.sql.settleSettings, q.s.sql.reap, []any{ids}, further...)
		})
	}
}

func pointers(os []Outcome) (ps []*Outcome) {
	for i := range os {
		ps = append(ps, &os[i])
	}
	return ps
}

// adopted returns a table of the well-known design, made the relay's by the migration, with so many ready jobs of
// somebody else's kind ahead of all others, and a quarter of them running.
func adopted(t *testing.T, foreign int) *testdb.DB {
	t.Helper()
	db := testdb.Empty(t)
	db.Exec(t, `CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, payload jsonb NOT NULL,
		status text NOT NULL DEFAULT 'ready' CHECK (status IN ('ready', 'running', 'done', 'dead')), run_at timestamptz NOT NULL DEFAULT now(),
		attempts int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 5, leased_until timestamptz, last_error text);
		CREATE INDEX jobs_ready_idx ON jobs (run_at) WHERE status = 'ready';
		CREATE INDEX jobs_running_idx ON jobs (leased_until) WHERE status = 'running'`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at) SELECT 'foreign', '1', now() - interval '1 day' FROM generate_series(1, $1::int) g`, foreign)
	db.Migrate(t, migrations.Options{})
	db.Exec(t, noAutovacuum)
	// The statistics don't know of running jobs: the index of those looks like the quickest way to any of them.
	db.Exec(t, "ANALYZE jobs")
	db.Exec(t, `UPDATE jobs SET status = 'running', leased_until = now() + interval '1 day' WHERE id % 4 = 0`)
	return db
}

// Somebody else's 200,000 rows ahead cost nothing.
func TestPlansBesideForeignRows(t *testing.T) {
	t.Parallel()
	db := adopted(t, 200_000)
	db.Exec(t, shuffledJobs, 20_000)
	for _, sql := range []string{"ANALYZE jobs", noStatistics} {
		db.Exec(t, "VACUUM jobs")
		db.Exec(t, sql)
		q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "k" })
		each(t, "claim, "+sql, 500*2*perJob, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	}
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "k" })
	drain(t, q)
	each(t, "empty claim", 20, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE kind = 'foreign' AND (attempts > 0 OR lease_token IS NOT NULL)`); n != 0 {
		t.Errorf("%d of somebody else's rows were changed", n)
	}
}

// While somebody holds an old snapshot nothing that was drained can be removed. An empty claim still reads next to
// nothing, and sweeps go over it in slices.
func TestPlansBesideAHeldSnapshot(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, waitingJobs, 200_000)
	hold(t, db)
	db.Exec(t, `DELETE FROM jobs`)
	q := newQueue(t, db, Options{})
	q.Expect("k")
	each(t, "first empty claim", 30_000, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	if got := claim(t, q); len(got) > 0 {
		t.Fatalf("claimed %d", len(got))
	}
	each(t, "empty claim", 20, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	sweep(t, q)
	each(t, "empty claim after a sweep", 20, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	insert(t, db, "k", 500)
	each(t, "claim", 500*perJob, func(further ...string) explained { return explainClaim(t, q, db, further...) })
	eventually(t, "the holder is named", func() bool { return q.heldBy(t) != "" })
	// What a sweep finds below all that was drained, or in its midst, doesn't lead the claim over the rest.
	for _, ago := range []string{"2 hours", "59 minutes"} {
		drain(t, q)
		raiseFloors(t, q, time.Now()) // past the lag, in which the last ones are
		db.Exec(t, `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', now() - $1::interval)`, ago)
		eventually(t, "the job is found", func() bool { return sweep(t, q).Due > 0 })
		each(t, "claim of a job "+ago+" old", 60, func(further ...string) explained { return explainClaim(t, q, db, further...) })
		claimOne(t, q)
	}
}

// heldBy sweeps, and says who holds a snapshot as the queue sees it.
func (q *Queue) heldBy(t testing.TB) string {
	sweep(t, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held {
		return ""
	}
	return q.sweeper.holder
}

// hold keeps a snapshot open until the test ends.
func hold(t *testing.T, db *testdb.DB) (release func()) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), db.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM jobs LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	release = func() { _ = conn.Close(context.Background()) }
	t.Cleanup(release)
	return release
}

// A claim never takes more than its batch, under the worst plans (B04).
func TestB04ClaimKeepsToTheBatchUnderBadPlans(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, waitingJobs, 1000)
	db.Exec(t, `INSERT INTO jobs (kind, payload) SELECT 'other', '1' FROM generate_series(1, 30)`)
	q := newQueue(t, db, Options{BatchSize: 5})
	all := []string{"hashjoin", "mergejoin", "material", "hashagg", "sort", "incremental_sort", "indexscan", "indexonlyscan", "bitmapscan", "seqscan", "nestloop", "memoize", "tidscan"}
	sets := [][]string{nil, all}
	for _, name := range all {
		sets = append(sets, []string{name})
	}
	for _, statistics := range []string{"ANALYZE jobs", noStatistics} {
		db.Exec(t, statistics)
		for _, off := range sets {
			var further []string
			for _, name := range off {
				further = append(further, "enable_"+name+" = off")
			}
			for mode, set := range planModes {
				e := explainClaim(t, q, db, append(further, set...)...)
				if e.rows < 1 || e.rows > 5 {
					t.Errorf("%d rows with %v off, %s plan: %v", e.rows, off, mode, e.nodes)
				}
			}
		}
	}
}
