package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// phase is a time with one share: after `kinds set` has returned and before it is run again.
type phase struct {
	share    int
	from, to time.Time // by the database's clock
}

// move is a kind on its way, with all who take part.
type move struct {
	t      *testing.T
	db     *testdb.DB
	kind   string
	load   *load
	old    *oldWorkers
	relays []*process
	env    settings
	phases []phase
	held   map[int64]bool // what a relay that was killed may have had in its hands
}

// A kind goes 0 → 25 → 100 → 0 → 100 under 1,000 jobs a second, with four old workers and two relays, one of which is
// killed on the way: every job is done once, by a side that owned it when it was claimed; a key never changes sides within
// a phase; a quarter is a quarter.
func TestGradualMigration(t *testing.T) {
	t.Parallel()
	db := testdb.Legacy(t, 0)
	db.Migrate(t, migrations.Options{})
	db.Exec(t, fmt.Sprintf(ledger, db.Schema))
	out := kafkaOutlet(t, "")
	m := &move{t: t, db: db, kind: testdb.LegacyKind, held: map[int64]bool{}, load: &load{kind: testdb.LegacyKind, rate: 1000}}
	m.env = out.settings.with(settings{
		"ROUTES": `[{kind: ` + m.kind + `, to: ["` + out.to + `"], share: 0}]`, "LEASE": "12s", "PUBLISH_TIMEOUT": "10s",
	})
	m.old = startOldWorkers(t, db, m.kind, 4)
	m.relays = []*process{startBinary(t, plain, db, m.env), startBinary(t, plain, db, m.env)}
	eventually(t, "the route's share is written", func() error {
		if got := value[int](t, db, `SELECT count(*) FROM relay_kinds WHERE kind = $1 AND share = 0`, m.kind); got != 1 {
			return fmt.Errorf("%d rows", got)
		}
		return nil
	})
	stop := m.trade()
	brief, fresh := 2*time.Second, int64(20_000)
	if services.Long() {
		brief, fresh = 20*time.Second, 60_000
	}
	m.phase(0, func() { sleep(t, brief) })
	m.phase(25, func() { m.quarter(fresh) })
	m.phase(100, func() { sleep(t, brief) })
	m.phase(0, func() { sleep(t, brief) })
	m.phase(100, func() { sleep(t, brief) })
	stop()
	m.finish(out)
}

// trade enqueues until stop is called.
func (m *move) trade() (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.load.run(ctx, m.db) }()
	var once bool
	stop = func() {
		if once {
			return
		}
		once = true
		cancel()
		if err := <-ended; err != nil {
			m.t.Errorf("enqueue: %v", err)
		}
	}
	m.t.Cleanup(stop)
	return stop
}

// sleep lets a phase last: its length is what is tested.
func sleep(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

func (m *move) clock() time.Time { return value[time.Time](m.t, m.db, `SELECT clock_timestamp()`) }

// phase sets the share and goes on while during runs.
func (m *move) phase(share int, during func()) {
	m.t.Helper()
	now := m.clock()
	if n := len(m.phases); n > 0 {
		m.phases[n-1].to = now
	}
	said := command(m.t, m.db, "kinds", "set", m.kind, strconv.Itoa(share))
	if !strings.HasSuffix(said, fmt.Sprintf("is %d\n", share)) {
		m.t.Errorf("kinds set %d: %q", share, said)
	}
	m.phases = append(m.phases, phase{share: share, from: m.clock()})
	during()
}

// quarter enqueues keys that come once, kills a relay on the way, and waits until all of them were claimed.
func (m *move) quarter(fresh int64) {
	m.t.Helper()
	m.load.fresh.Store(fresh)
	within(m.t, 4*generous, "half of the keys are enqueued", func() error { return atMost(m.load.fresh.Load(), fresh/2) })
	m.kill()
	within(m.t, 4*generous, "the keys are enqueued", func() error { return atMost(m.load.fresh.Load(), 0) })
	within(m.t, 4*generous, "the keys were claimed", func() error {
		sleep(m.t, 200*time.Millisecond)
		return atMost(value[int64](m.t, m.db, `SELECT count(*) FROM jobs WHERE status = 'ready' AND key LIKE 'fresh-%'`), 0)
	})
	listed := kindOf(m.t, m.db, m.kind)
	if listed.Share != 25 || listed.Percent == nil {
		m.t.Errorf("kinds list: %+v", listed)
		return
	}
	truth := value[float64](m.t, m.db, `SELECT 100 * avg(relay::int)::float8 FROM ledger WHERE at >= $1`, listed.Since)
	m.t.Logf("kinds list shows %.1f %% since %v, the ledger %.1f %%", *listed.Percent, listed.Since, truth)
	if math.Abs(*listed.Percent-truth) > 4 { // one counts what ended, the other what began
		m.t.Errorf("kinds list shows %.1f %%, the ledger %.1f %%", *listed.Percent, truth)
	}
}

func atMost(n, most int64) error {
	if n > most {
		return fmt.Errorf("%d left, want %d at most", n, most)
	}
	return nil
}

// kill ends a relay that holds jobs, and starts another. What it holds shows once the other relay has settled its own.
func (m *move) kill() {
	m.t.Helper()
	running := func() []int64 {
		return testdb.Column[int64](m.t, m.db, `SELECT id FROM jobs WHERE status = 'running' AND lease_token IS NOT NULL`)
	}
	p := m.relays[0]
	within(m.t, generous, "a relay is caught with jobs in its hands", func() error {
		p.signal(syscall.SIGSTOP)
		before := running()
		sleep(m.t, 300*time.Millisecond)
		for _, id := range running() {
			if slices.Contains(before, id) {
				m.held[id] = true
			}
		}
		if len(m.held) == 0 {
			p.signal(syscall.SIGCONT)
			return fmt.Errorf("%d jobs were running", len(before))
		}
		return nil
	})
	p.kill()
	m.relays[0] = startBinary(m.t, plain, m.db, m.env)
}

// finish waits until nothing is left, ends everybody, and holds what was done against the ledger.
func (m *move) finish(out outlet) {
	m.t.Helper()
	within(m.t, 2*generous, "everything is done", func() error {
		sleep(m.t, 200*time.Millisecond)
		return atMost(value[int64](m.t, m.db, `SELECT count(*) FROM jobs WHERE status <> 'done'`), 0)
	})
	m.phases[len(m.phases)-1].to = m.clock()
	m.old.end()
	for _, p := range m.relays {
		if code := p.terminate(generous); code != 0 {
			m.t.Errorf("exit code of a relay: %d", code)
		}
	}
	if len(m.old.errors) > 0 {
		m.t.Errorf("old workers got %d errors, the first: %v", len(m.old.errors), m.old.errors[0])
	}
	byRelays := m.sent(out)
	all := claims(m.t, m.db)
	m.checkOnce(byRelays)
	m.checkOwners(all)
	m.checkQuarter(all)
}

// sent counts the messages of each job.
func (m *move) sent(out outlet) map[int64]int {
	m.t.Helper()
	want := value[int](m.t, m.db, `SELECT count(*) FROM jobs WHERE lease_token IS NOT NULL`)
	counts := map[int64]int{}
	for _, s := range out.read(m.t, func(all []seen) bool { return len(distinct(all)) >= want }) {
		id, err := strconv.ParseInt(strings.TrimPrefix(s.id, m.db.Schema+"/"), 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		counts[id]++
	}
	return counts
}
