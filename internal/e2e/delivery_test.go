package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// routes is RELAY_ROUTES from pairs of kind and destinations.
func routes(pairs ...any) string {
	out := ""
	for i := 0; i < len(pairs); i += 2 {
		out += fmt.Sprintf("- {kind: %q, to: [%s]}\n", pairs[i], strings.Join(pairs[i+1].([]string), ", "))
	}
	return out
}

// 10,000 jobs of four kinds, one of them fanned out to all three brokers, relayed by two processes: every committed job
// arrives exactly once, none of those that were rolled back, as the contract says it looks.
func TestEveryCommittedJobArrivesOnce(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	kafka, rabbit, queue := kafkaOutlet(t, ""), rabbitOutlet(t, ""), sqsOutlet(t, "")
	env := kafka.settings.with(rabbit.settings).with(queue.settings).with(settings{
		"BATCH_SIZE": "100",
		"ROUTES": routes("k", []string{kafka.to}, "r", []string{rabbit.to}, "s", []string{queue.to},
			"all", []string{kafka.to, rabbit.to, queue.to}),
	})
	a, b := start(t, db, env), start(t, db, env)
	s := newShop(t, db)
	s.trade(2500, "k", "r", "s", "all")
	s.drained(generous)
	for _, o := range []struct {
		outlet
		kinds []string
	}{{kafka, []string{"k", "all"}}, {rabbit, []string{"r", "all"}}, {queue, []string{"s", "all"}}} {
		if n := s.arrived(o.outlet, o.kinds...); n != 0 {
			t.Errorf("%s: %d duplicates in a run without faults", o.to, n)
		}
	}
	if got := s.attempts(); !slices.Equal(got, []int{1}) {
		t.Errorf("attempts: got %v, want all 1", got)
	}
	if len(s.rolledBack) < 1000 {
		t.Errorf("only %d jobs were rolled back: the test tests nothing", len(s.rolledBack))
	}
	x, y := a.metric("relay_jobs_claimed_total"), b.metric("relay_jobs_claimed_total")
	if x+y != 10_000 || x == 0 || y == 0 {
		t.Errorf("claimed by the two processes: %v and %v, want 10,000 in all and both at work", x, y)
	}
	for _, p := range []*process{a, b} {
		if code := p.terminate(generous); code != 0 {
			t.Errorf("exit code after SIGTERM: got %d, want 0", code)
		}
	}
}

// A kind without a route is somebody else's, whatever its state.
func TestB25ForeignKindsAreNotTouched(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	kafka := kafkaOutlet(t, "")
	db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload) SELECT 'foreign', '{}' FROM generate_series(1, 50)`)
	db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload, status, attempts, leased_until) VALUES ('foreign', '{}', 'running', 1, now() - interval '1 hour')`)
	db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload, status, finished_at) VALUES ('foreign', '{}', 'done', now() - interval '1 year')`)
	before := snapshot(t, db, "foreign")
	p := start(t, db, kafka.settings.with(settings{"ROUTES": routes("mine", []string{kafka.to}), "RETENTION": "1s", "LEASE": "3s", "PUBLISH_TIMEOUT": "2s"}))
	s := newShop(t, db)
	s.trade(200, "mine")
	eventually(t, "the relay's own jobs are done and cleaned up", func() error {
		if got := s.statuses("mine"); len(got) != 0 {
			return fmt.Errorf("statuses: %v", got)
		}
		return nil
	})
	if after := snapshot(t, db, "foreign"); after != before {
		t.Errorf("foreign rows changed:\n%s\nwere:\n%s", after, before)
	}
	if n := p.metric("relay_jobs_claimed_total", "kind=foreign"); n != 0 {
		t.Errorf("foreign jobs claimed: %v", n)
	}
}
