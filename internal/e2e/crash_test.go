package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

func value[T any](t *testing.T, db *testdb.DB, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Pool.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// snapshot is all rows of a kind as text.
func snapshot(t *testing.T, db *testdb.DB, kind string) string {
	t.Helper()
	return value[string](t, db, `SELECT string_agg(j::text, E'\n' ORDER BY id) FROM `+db.Table+` j WHERE kind = $1`, kind)
}

// batches of a relay that is killed or stopped while it works.
const (
	batchSize = 50
	workers   = 2
)

// slowly gives a relay small batches over a slow line, so that it can be caught in the middle.
func slowly(t *testing.T, db *testdb.DB) (outlet, *line, settings) {
	t.Helper()
	l := rabbitLine(t)
	l.delay(150 * time.Millisecond)
	o := rabbitOutlet(t, l.addr)
	return o, l, o.settings.with(settings{
		"ROUTES": routes("r", []string{o.to}), "BATCH_SIZE": fmt.Sprint(batchSize), "WORKERS": fmt.Sprint(workers),
		"DRAIN_TIMEOUT": "60s",
	})
}

// A kill in the middle of batches: nothing is lost, duplicates are at most the jobs that were in flight.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o, _, env := slowly(t, db)
	s := newShop(t, db)
	s.trade(1000, "r")
	env = env.with(settings{"LEASE": "12s", "PUBLISH_TIMEOUT": "10s"}) // what it held comes back soon
	p := start(t, db, env)
	eventually(t, "it is in the middle", func() error { return middle(s) })
	p.kill()
	running := s.statuses()["running"]
	start(t, db, env)
	s.drained(generous)
	if n := s.arrived(o, "r"); n > running || n > batchSize*workers {
		t.Errorf("%d duplicates with %d jobs in flight at the kill", n, running)
	}
}

// middle: some are done, some are running.
func middle(s *shop) error {
	got := s.statuses()
	if got["done"] > 0 && got["running"] > 0 && got["ready"] > 0 {
		return nil
	}
	return fmt.Errorf("statuses: %v", got)
}

// SIGTERM in the middle: what is in flight ends, the rest was never touched, nothing comes twice, exit 0.
func TestB26TermDrains(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o, _, env := slowly(t, db)
	s := newShop(t, db)
	s.trade(1000, "r")
	p := start(t, db, env)
	eventually(t, "it is in the middle", func() error { return middle(s) })
	if code := p.terminate(generous); code != 0 {
		t.Errorf("exit code: got %d, want 0\n%s", code, p.tail())
	}
	if got := s.statuses(); got["running"] != 0 || got["done"] == 0 || got["ready"] == 0 {
		t.Errorf("statuses after the drain: %v, want done and ready ones only", got)
	}
	if n := value[int](t, db, `SELECT count(*) FROM `+db.Table+` WHERE status = 'ready' AND (attempts <> 0 OR lease_token IS NOT NULL OR leased_until IS NOT NULL)`); n != 0 {
		t.Errorf("%d released jobs lost an attempt or still show a lease", n)
	}
	start(t, db, env)
	s.drained(generous)
	if n := s.arrived(o, "r"); n != 0 {
		t.Errorf("%d duplicates after a drain", n)
	}
	if got := s.attempts(); !slices.Equal(got, []int{1}) {
		t.Errorf("attempts: got %v, want all 1", got)
	}
}

// A second SIGTERM gives up at once.
func TestB26SecondTermGivesUp(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	_, l, env := slowly(t, db)
	s := newShop(t, db)
	s.trade(300, "r")
	p := start(t, db, env)
	eventually(t, "it is in the middle", func() error { return middle(s) })
	l.swallow()
	eventually(t, "a worker hangs with its batch", func() error { // it has had it for two of the lease's sixty seconds
		if n := value[int](t, db, `SELECT count(*) FROM `+db.Table+` WHERE status = 'running' AND leased_until < now() + interval '58 seconds'`); n < batchSize {
			return fmt.Errorf("%d running for so long", n)
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() error {
		if code, body := p.get("/readyz"); code != 503 {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
	if code := p.terminate(10 * time.Second); code != 1 {
		t.Errorf("exit code after a second SIGTERM: got %d, want 1", code)
	}
}

// P6: a process that was stopped past its lease changes nothing when it goes on, and counts what it lost.
func TestB06StaleHolderChangesNothing(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o, l, env := slowly(t, db)
	s := newShop(t, db)
	env = env.with(settings{"LEASE": "5s", "PUBLISH_TIMEOUT": "4s"})
	stale := start(t, db, env)
	s.trade(20, "r")
	s.drained(generous) // it is connected
	l.delay(1500 * time.Millisecond)
	s.trade(batchSize*workers, "r")
	eventually(t, "it holds leases", func() error {
		if n := s.statuses()["running"]; n == 0 {
			return fmt.Errorf("%d running", n)
		}
		return nil
	})
	stale.signal(syscall.SIGSTOP)
	held := s.statuses()["running"]
	start(t, db, env.with(settings{"RABBITMQ_URL": services.RabbitMQ(t)}))
	s.drained(generous)
	before := snapshot(t, db, "r")
	stale.signal(syscall.SIGCONT)
	eventually(t, "the stale process counts what it lost", func() error {
		if n := stale.metric("relay_lost_leases_total"); n < 1 {
			return fmt.Errorf("lost leases: %v of %d held", n, held)
		}
		return nil
	})
	if code := stale.terminate(30 * time.Second); code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
	if after := snapshot(t, db, "r"); after != before {
		t.Errorf("the stale process changed rows:\n%s\nwere\n%s", after, before)
	}
	if n := s.arrived(o, "r"); n > held {
		t.Errorf("%d duplicates with %d jobs held by the stale process", n, held)
	}
}
