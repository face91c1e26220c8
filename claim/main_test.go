package claim

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEach runs a test on the usual server and, where there is one, on the oldest major version that is supported.
func onEach(t *testing.T, test func(t *testing.T, newDB func(testing.TB) *testdb.DB)) {
	t.Helper()
	servers := map[string]string{"new": services.Postgres(t)}
	if old := os.Getenv("RELAY_TEST_POSTGRES_OLD"); old != "" {
		servers["old"] = old
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t testing.TB) *testdb.DB {
				db := testdb.On(t, server)
				db.Migrate(t, migrations.Options{})
				return db
			})
		})
	}
}

func open(Pair) Gate { return Gate{Open: true} }

func every(string) bool { return true }

// newStore returns a store on the test's schema.
func newStore(t testing.TB, db *testdb.DB, o Options) *Store {
	t.Helper()
	o.Table = db.Table
	s, err := New(db.Pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newQueue(t testing.TB, db *testdb.DB, o Options) *Queue {
	t.Helper()
	return newStore(t, db, o).Queue(every)
}

// claim claims once.
func claim(t testing.TB, q *Queue) []Lease {
	t.Helper()
	leases, err := q.Claim(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// claimOne claims the only job there is.
func claimOne(t testing.TB, q *Queue) *Lease {
	t.Helper()
	leases := claim(t, q)
	if len(leases) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(leases))
	}
	return &leases[0]
}

// settle settles all leases alike, and returns the lost ones.
func settle(t testing.TB, q *Queue, leases []Lease, o Outcome) []int64 {
	t.Helper()
	outcomes := make([]Outcome, len(leases))
	for i := range leases {
		outcomes[i] = o
		outcomes[i].Lease = &leases[i]
	}
	lost, err := q.Settle(t.Context(), outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

// drain claims and settles as done until three claims in a row bring nothing, sweeping in between.
func drain(t testing.TB, q *Queue) (ids []int64) {
	t.Helper()
	for empty := 0; empty < 3; {
		leases := claim(t, q)
		if len(leases) == 0 {
			empty++
			sweep(t, q)
			continue
		}
		empty = 0
		for _, l := range leases {
			ids = append(ids, l.ID)
		}
		if lost := settle(t, q, leases, Outcome{Verdict: Done}); len(lost) > 0 {
			t.Fatalf("lost %v", lost)
		}
	}
	slices.Sort(ids)
	return ids
}

func sweep(t testing.TB, q *Queue) Swept {
	t.Helper()
	swept, err := q.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return swept
}

// insert adds n jobs of a kind, and returns their ids.
func insert(t testing.TB, db *testdb.DB, kind string, n int) []int64 {
	t.Helper()
	return testdb.Column[int64](t, db, `INSERT INTO jobs (kind, payload) SELECT $1, jsonb_build_object('n', g)
		FROM generate_series(1, $2::int) g RETURNING id`, kind, n)
}

// eventually waits until done returns true.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// row is what the tests look at of a job.
type row struct {
	Status   string
	Attempts int
	Token    *int64
	Leased   bool
	Error    *string
	Finished bool
}

func read(t testing.TB, db *testdb.DB, id int64) row {
	t.Helper()
	rows, _ := db.Pool.Query(t.Context(), `SELECT status, attempts, lease_token, leased_until IS NOT NULL, last_error, finished_at IS NOT NULL FROM jobs WHERE id = $1`, id)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatalf("read job %d: %v", id, err)
	}
	return r
}

// during runs fn until ctx ends, from another goroutine that the test waits for.
func during(t testing.TB, fn func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); fn(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}
