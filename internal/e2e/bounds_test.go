package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

const mib = 1 << 20

// P8: a lane of 1 MiB payloads stays within BATCH_BYTES × workers × 2 and one largest job; the test allows five times
// that, for the garbage collector and what brokers' clients buffer, and has four times more than that waiting.
func TestMemoryStaysBounded(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	l := rabbitLine(t)
	o := rabbitOutlet(t, l.addr)
	p := startBinary(t, plain, db, o.settings.with(settings{"ROUTES": routes("big", []string{o.to}), "BATCH_BYTES": "2MiB", "WORKERS": "2"}))
	before := p.peak()
	const jobs, bound = 180, (2*2*2 + 1) * mib * 5
	db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload) SELECT 'big', to_jsonb(repeat('x', $1)) FROM generate_series(1, $2::int)`, mib, jobs)
	s := newShop(t, db)
	s.drained(generous, "big")
	grown := p.peak() - before
	t.Logf("%d MiB went through; the peak grew by %d MiB", jobs, grown/mib)
	if grown > bound {
		t.Errorf("the peak grew by %d MiB, the bound is %d MiB", grown/mib, bound/mib)
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that the process ever had, in bytes.
func (p *process) peak() int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := strconv.Atoi(string(highWater.FindSubmatch(b)[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return n << 10
}

// A database that crashes and comes back: readiness shows it, nothing is lost, the relay goes on by itself.
func TestB27DatabaseAway(t *testing.T) {
	t.Parallel()
	server := services.OwnPostgres(t)
	db := testdb.On(t, server.URL)
	db.Migrate(t, migrations.Options{})
	o := kafkaOutlet(t, "")
	s := newShop(t, db)
	p := start(t, db, o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "BATCH_SIZE": "20", "LEASE": "5s", "PUBLISH_TIMEOUT": "3s"}))
	s.trade(200, "a")
	server.Kill()
	eventually(t, "readiness is red, the process alive", func() error {
		ready, body := p.get("/readyz")
		if alive, _ := p.get("/healthz"); ready != 503 || alive != 200 {
			return fmt.Errorf("readyz %d %s, healthz %d", ready, body, alive)
		}
		return nil
	})
	server.Start()
	eventually(t, "readiness is green", func() error {
		if ready, body := p.get("/readyz"); ready != 200 {
			return fmt.Errorf("readyz %d %s", ready, body)
		}
		return nil
	})
	db.Pool.Reset() // the shop's own connections
	s.trade(200, "a")
	s.drained(generous)
	if n := s.arrived(o, "a"); n > 4*20 {
		t.Errorf("%d duplicates with at most %d jobs in flight at the crash", n, 4*20)
	}
}
