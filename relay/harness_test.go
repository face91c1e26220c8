package relay

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// script is a sink that does as it is told. It stands in for faults that no real broker produces on demand.
type script struct {
	mu      sync.Mutex
	say     func(m sinks.Message) sinks.Result // nil: accepted
	down    error                              // what Check says
	checks  int                                // how often it was asked
	batches [][]sinks.Message
	delay   time.Duration
	deaf    chan struct{} // while open, Publish waits for it whatever its context says
	hang    chan struct{} // while open, Publish waits for it or for its context
}

func (s *script) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	s.mu.Lock()
	s.batches = append(s.batches, slices.Clone(batch))
	say, hang := s.say, s.hang
	s.mu.Unlock()
	sleep(ctx, s.delay)
	if s.deaf != nil {
		<-s.deaf
	}
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			for i := range results {
				results[i] = sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: ctx.Err()}
			}
			return
		}
	}
	for i, m := range batch {
		results[i] = sinks.Result{Outcome: sinks.Accepted}
		if say != nil {
			results[i] = say(m)
		}
	}
}

func (s *script) Check(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks++
	return s.down
}

func (s *script) Close(context.Context) error { return nil }

// set changes what the sink does.
func (s *script) set(say func(sinks.Message) sinks.Result, down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say, s.down = say, down
}

// sent lists the ids of all messages in the order in which they came.
func (s *script) sent() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		for _, m := range b {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// engine is a running relay on a schema of its own.
type engine struct {
	*Relay
	t       *testing.T
	db      *testdb.DB
	stop    func() error // drains, once
	abandon context.CancelFunc
}

type options struct {
	routes []Route
	sinks  map[string]sinks.Sink
	change func(*Config, *claim.Options)
}

func run(t *testing.T, db *testdb.DB, o options) *engine {
	t.Helper()
	store := claim.Options{Table: db.Table, Lease: 10 * time.Second, BatchSize: 50}
	c := Config{Routes: o.routes, Sinks: o.sinks, Source: "test", Workers: 2, PublishTimeout: 5 * time.Second,
		PollMax: 100 * time.Millisecond, RetryBase: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond, DrainTimeout: 10 * time.Second, Retention: time.Hour}
	if o.change != nil {
		o.change(&c, &store)
	}
	var err error
	if c.Store, err = claim.New(db.Pool, store); err != nil {
		t.Fatal(err)
	}
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	abandoned, abandon := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, abandoned) }()
	e := &engine{Relay: r, t: t, db: db, abandon: abandon}
	e.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { abandon(); _ = e.stop() })
	return e
}

func (e *engine) enqueue(kind string, n int) {
	e.t.Helper()
	e.db.Exec(e.t, `INSERT INTO `+e.db.Table+` (kind, payload) SELECT $1, jsonb_build_object('n', g) FROM generate_series(1, $2::int) g`, kind, n)
}

// jobs describes the rows of a kind: status/attempts → count.
func (e *engine) jobs(kind string) map[string]int {
	e.t.Helper()
	rows, err := e.db.Pool.Query(context.Background(), `SELECT status || '/' || attempts, count(*) FROM `+e.db.Table+` WHERE kind = $1 GROUP BY 1`, kind)
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[string]int{}
	var what string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&what, &n}, func() error { out[what] = n; return nil }); err != nil {
		e.t.Fatal(err)
	}
	return out
}

// until waits for the rows of a kind to be just so.
func (e *engine) until(kind, what string, n int) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%d %s %s", n, kind, what), func() bool { return e.jobs(kind)[what] == n }, func() any { return e.jobs(kind) })
}

func (e *engine) eventually(what string, ok func() bool, seen func() any) {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatalf("not within a minute: %s; seen %v", what, seen())
		}
	}
}

func text(e *engine, sql string, args ...any) string {
	e.t.Helper()
	var s string
	if err := e.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&s); err != nil {
		e.t.Fatal(err)
	}
	return s
}

func all(o sinks.Outcome, scope sinks.Scope) func(sinks.Message) sinks.Result {
	return func(sinks.Message) sinks.Result { return sinks.Result{Outcome: o, Scope: scope, Err: errAway} }
}

func one(kind string, to ...string) []Route { return []Route{{Kind: kind, To: to}} }
