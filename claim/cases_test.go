package claim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/testdb"
)

// B04: claims as they are made, with the planner bent as an administrator might have it: never more than a batch, every
// job once. Unordered and ordered claims, each on a role's settings that take one kind of plan after the other away.
func TestB04BatchesUnderBadPlans(t *testing.T) {
	t.Parallel()
	bad := [][]string{nil, {"hashjoin"}, {"mergejoin"}, {"nestloop"}, {"material"}, {"hashagg"}, {"sort"}, {"indexscan", "indexonlyscan"}, {"bitmapscan"}, {"seqscan"},
		{"hashjoin", "mergejoin", "material", "hashagg", "sort", "indexscan", "indexonlyscan", "bitmapscan"}}
	for _, keys := range []bool{false, true} {
		for _, off := range bad {
			t.Run(fmt.Sprintf("ordered %v without %v", keys, off), func(t *testing.T) {
				t.Parallel()
				db := testdb.New(t)
				db.Exec(t, noAutovacuum)
				db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k' || g % 3, 'key' || g % 7, '1' FROM generate_series(1, 120) g`)
				pool := poolWith(t, db, func(c *pgxpool.Config) {
					for _, name := range off {
						c.ConnConfig.RuntimeParams["enable_"+name] = "off"
					}
					c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
				})
				q := storeOn(t, pool, Options{Table: db.Table, BatchSize: 5}).Queue(every)
				if keys {
					q.OrderOf(func(string) Order { return Order{Keys: true} })
				}
				seen := map[int64]bool{}
				for empty := 0; empty < 3; {
					leases := claim(t, q)
					if len(leases) > 5 {
						t.Errorf("%d jobs in a batch of 5", len(leases))
					}
					for _, l := range leases {
						if seen[l.ID] {
							t.Errorf("job %d was claimed twice", l.ID)
						}
						seen[l.ID] = true
					}
					if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'running'`); n != len(leases) {
						t.Errorf("%d jobs are leased by a claim that returned %d", n, len(leases))
					}
					if len(leases) == 0 {
						empty++
						sweep(t, q)
						continue
					}
					empty = 0
					settle(t, q, leases, Outcome{Verdict: Done})
				}
				if len(seen) != 120 {
					t.Errorf("%d of 120 jobs were claimed", len(seen))
				}
			})
		}
	}
}

// violations notes who claims, every change that takes a job out of its end (but for a late acknowledgement of a dead
// one), and every end that somebody else than the holder gives a lease that lasts.
const violations = `CREATE TABLE violations (job bigint, change text);
	CREATE TABLE holders (token bigint PRIMARY KEY, who text);
	CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE me text := current_setting('application_name'); BEGIN
		IF NEW.status = 'running' AND OLD.status <> 'running' THEN
			INSERT INTO holders VALUES (NEW.lease_token, me) ON CONFLICT DO NOTHING;
		END IF;
		IF OLD.status = 'done' OR OLD.status = 'dead' AND NEW.status <> 'done'
			OR OLD.status = 'running' AND NEW.status <> 'running' AND OLD.leased_until > clock_timestamp()
				AND NOT EXISTS (SELECT FROM holders h WHERE h.token = OLD.lease_token AND h.who = me) THEN
			INSERT INTO violations VALUES (OLD.id, me || ' changed ' || OLD.status || ' to ' || NEW.status);
		END IF;
		RETURN NULL; END $$;
	CREATE TRIGGER watch AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION watch()`

// queueOf is a queue on connections that bear a name.
func queueOf(t *testing.T, db *testdb.DB, name string, o Options) *Queue {
	t.Helper()
	o.Table = db.Table
	return storeOn(t, poolWith(t, db, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"], c.MaxConns = name, 4 }), o).Queue(every)
}

// B06: four relays finish jobs while leases run out all the time and two reap what has expired: nothing comes back from
// done or dead, nobody ends a lease that another one holds, and whoever was overtaken is told.
func TestB06ReapersBesideSettlements(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, violations)
	db.Exec(t, `INSERT INTO jobs (kind, payload, max_attempts) SELECT 'k', '1', 1000 FROM generate_series(1, 3000)`)
	o := Options{Lease: 30 * time.Millisecond, BatchSize: 20}
	for range 2 {
		reaper := queueOf(t, db, "reaper", o)
		during(t, func(ctx context.Context) {
			for ctx.Err() == nil {
				reaper.asked(-time.Hour)
				_, _ = reaper.Sweep(ctx)
			}
		})
	}
	lost := make(chan int)
	for w := range 4 {
		q, rnd := queueOf(t, db, fmt.Sprint("relay ", w), o), rand.New(rand.NewPCG(uint64(w), 6))
		go func() {
			n := 0
			defer func() { lost <- n }()
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				leases, err := q.Claim(t.Context(), open)
				if err != nil {
					t.Error(err)
					return
				}
				if len(leases) == 0 {
					if testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE finished_at IS NULL`) == 0 {
						return
					}
					_, _ = q.Sweep(t.Context()) // what was reaped lies below the floors
				}
				time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond) // as long as a broker may take: every other time too long
				outcomes := make([]Outcome, len(leases))
				for i := range leases {
					outcomes[i] = Outcome{Lease: &leases[i], Verdict: []Verdict{Done, Done, Dead, Retry, Release}[rnd.IntN(5)], Error: "x"}
				}
				missed, err := q.Settle(t.Context(), outcomes)
				if err != nil {
					t.Error(err)
					return
				}
				n += len(missed)
			}
		}()
	}
	total := 0
	for range 4 {
		total += <-lost
	}
	for _, v := range testdb.Column[string](t, db, `SELECT 'job ' || job || ': ' || change FROM violations ORDER BY job LIMIT 10`) {
		t.Error(v)
	}
	if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status NOT IN ('done', 'dead')`); got != 0 || total == 0 {
		t.Errorf("%d jobs never came to an end; %d settlements were too late, want some", got, total)
	}
	t.Logf("%d settlements were too late", total)
}
