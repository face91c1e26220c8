package claim

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/testdb"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// poolWith opens a pool on the test's schema with a changed configuration.
func poolWith(t testing.TB, db *testdb.DB, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func storeOn(t testing.TB, pool *pgxpool.Pool, o Options) *Store {
	t.Helper()
	s, err := New(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Everything works the same in every exec mode, whatever the session's formats are.
func TestExecModes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, newDB func(testing.TB) *testdb.DB) {
		for _, mode := range modes {
			t.Run(mode.String(), func(t *testing.T) { t.Parallel(); execMode(t, newDB(t), mode) })
		}
	})
}

func execMode(t *testing.T, db *testdb.DB, mode pgx.QueryExecMode) {
	pool := poolWith(t, db, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = mode
		for name, value := range map[string]string{"DateStyle": "German", "TimeZone": "Asia/Kathmandu", "bytea_output": "escape", "IntervalStyle": "sql_standard", "statement_timeout": "20s"} {
			c.ConnConfig.RuntimeParams[name] = value
		}
	})
	exercise(t, db, storeOn(t, pool, Options{Table: db.Table}))
	if got := testdb.One[string](t, db, "SELECT current_setting('enable_sort')"); got != "on" {
		t.Errorf("enable_sort is %s after it", got)
	}
}

// exercise runs every statement, and checks what they read.
func exercise(t *testing.T, db *testdb.DB, s *Store) {
	t.Helper()
	ctx := t.Context()
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, headers, priority, delivered, run_at, created_at) VALUES
		('k', 'é', '{"a": "\\ \" '' é"}', '{"h": 1}', -3, '{"a,b","c\"d","e\\f",NULL}', '2026-01-02T03:04:05.678901Z', NULL);
		INSERT INTO jobs (kind, body, run_at) VALUES ('k', '\x00ff5c27', '-infinity');
		INSERT INTO jobs (kind, payload) SELECT 'k', to_jsonb(g) FROM generate_series(1, 18) g`)
	q := s.Queue(every)
	leases, err := q.Claim(ctx, func(Pair) Gate { return Gate{Open: true, Lacking: []string{"c\"d", "x\\,"}} })
	if err != nil || len(leases) != 20 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	a, b := leases[0], leases[1]
	got := fmt.Sprintf("%s %s %s %d %q %s %v | %x %v", *a.Key, a.Payload, a.Headers, a.Priority, a.Delivered, a.RunAt.Format(time.RFC3339Nano), a.CreatedAt.IsZero(), b.Body, b.RunAt.IsZero())
	want := `é {"a": "\\ \" ' é"} {"h": 1} -3 ["a,b" "c\"d" "e\\f"] 2026-01-02T03:04:05.678901Z true | 00ff5c27 true`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	held := make([]*Lease, len(leases))
	outcomes := make([]Outcome, len(leases))
	for i := range leases {
		held[i] = &leases[i]
		outcomes[i] = Outcome{Lease: &leases[i], Verdict: Verdict(i % 4), After: time.Duration(i) * time.Minute, Error: "it's \\ \"é\"", Delivered: []string{`x"y\z`}}
	}
	if lost, err := q.Extend(ctx, held); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if lost, err := q.Settle(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE delivered @> ARRAY['x"y\z'] AND (last_error IS NULL OR last_error = 'it''s \ "é"')`); n != 20 {
		t.Errorf("%d of 20 jobs as settled", n)
	}
	db.Exec(t, `UPDATE jobs SET status = 'running', lease_token = 7, leased_until = now() - interval '1 s', run_at = now() - interval '1 hour' WHERE status = 'ready'`)
	if leases, err := q.Claim(ctx, open); err != nil || len(leases) > 0 {
		t.Errorf("claimed %d, %v", len(leases), err)
	}
	if swept, err := q.Sweep(ctx); err != nil || swept.Reaped["k"] != 10 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	f, err := s.Figures(ctx)
	if err != nil || len(f.Kinds) != 1 || f.Kinds[0].Dead != 5 || f.Kinds[0].Ready != 10 {
		t.Errorf("figures %+v, %v", f, err)
	}
	n := 0
	filter := Filter{Error: `\ "é"`, Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	if err := s.ListDead(ctx, filter, func(d DeadJob) error { n++; return nil }); err != nil || n != 5 {
		t.Errorf("listed %d dead jobs, %v", n, err)
	}
	if c, err := s.RequeueDead(ctx, Filter{IDs: []int64{a.ID + 3, 1 << 40, a.ID}}, false); err != nil || c != (Changed{1, 1, 1}) {
		t.Errorf("requeued %+v, %v", c, err)
	}
	if d, ok, err := s.GetDead(ctx, a.ID+7); err != nil || !ok || string(d.Payload) == "" || d.FinishedAt.IsZero() {
		t.Errorf("dead job %+v, %v, %v", d, ok, err)
	}
	if c, err := s.DiscardDead(ctx, Filter{Kind: "k"}, false); err != nil || c != (Changed{4, 0, 0}) {
		t.Errorf("discarded %+v, %v", c, err)
	}
	if n, err := q.Clean(ctx, 0, 0); err != nil || n != 5 {
		t.Errorf("cleaned %d, %v", n, err)
	}
}

// Through a pooler that gives the session to somebody else after each transaction everything works as well, and none of
// a claim's settings stays behind.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	url := db.Bouncer(t)
	for _, mode := range modes[1:] {
		pool := poolWith(t, db, func(c *pgxpool.Config) {
			at, err := pgxpool.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			*c = *at
			c.ConnConfig.DefaultQueryExecMode = mode
		})
		s := storeOn(t, pool, Options{Table: db.Table})
		db.Exec(t, "DELETE FROM jobs")
		exercise(t, db, s)
		db.Exec(t, "DELETE FROM jobs")
		insert(t, db, "k", 2000)
		errs := make(chan error)
		for range 8 {
			q := s.Queue(every)
			go func() {
				for range 10 {
					leases, err := q.Claim(t.Context(), open)
					if err != nil {
						errs <- err
						return
					}
					outcomes := make([]Outcome, len(leases))
					for i := range leases {
						outcomes[i] = Outcome{Lease: &leases[i], Verdict: Done}
					}
					if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
						errs <- fmt.Errorf("lost %v: %w", lost, err)
						return
					}
				}
				errs <- nil
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("%v: %v", mode, err)
			}
		}
		var sorts, commits string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting('enable_sort'), current_setting('synchronous_commit')").Scan(&sorts, &commits); err != nil || sorts != "on" || commits != "on" {
			t.Errorf("%v: enable_sort %s and synchronous_commit %s stayed behind, %v", mode, sorts, commits, err)
		}
	}
}
