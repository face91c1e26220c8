package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

// outage is how long a broker is away: 20 s here, three minutes in the long run.
func outage() time.Duration {
	if services.Long() {
		return 3 * time.Minute
	}
	return 20 * time.Second
}

// A broker that is away, or takes everything and answers nothing: no job dies, the other destinations keep their pace,
// and everything drains afterwards by itself.
func TestB22Outage(t *testing.T) {
	t.Parallel()
	brokers := map[string]struct {
		line   func(*testing.T) *line
		outlet func(*testing.T, string) outlet
	}{"kafka": {kafkaLine, kafkaOutlet}, "rabbitmq": {rabbitLine, rabbitOutlet}, "sqs": {sqsLine, sqsOutlet}}
	for name, b := range brokers {
		t.Run(name+"/away", func(t *testing.T) {
			t.Parallel()
			l := b.line(t)
			survive(t, b.outlet(t, l.addr), name, l.cut, l.heal)
		})
		t.Run(name+"/silent", func(t *testing.T) {
			t.Parallel()
			l := b.line(t)
			survive(t, b.outlet(t, l.addr), name, l.swallow, l.heal)
		})
	}
}

func survive(t *testing.T, broken outlet, broker string, fault, heal func()) {
	t.Helper()
	db := testdb.New(t)
	healthy := rabbitOutlet
	if broker == "rabbitmq" {
		healthy = kafkaOutlet
	}
	other := healthy(t, "")
	s := newShop(t, db)
	p := start(t, db, broken.settings.with(other.settings).with(settings{
		"ROUTES": routes("broken", []string{broken.to}, "healthy", []string{other.to}),
		"LEASE":  "6s", "PUBLISH_TIMEOUT": "3s", "WORKERS": "2", "RETRY_BASE": "10s", "RETRY_MAX": "1h",
	}))
	s.trade(50, "broken", "healthy")
	s.drained(generous)

	began := value[time.Time](t, db, `SELECT clock_timestamp()`)
	fault()
	stop := s.flow(10, "broken", "healthy")
	s.trade(300, "broken")
	eventually(t, "the outage shows", func() error {
		code, body := p.get("/readyz")
		if code != 200 || !strings.Contains(body, "degraded") || p.metric("relay_sink_up", "sink="+broker) != 0 {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
	hold(t, outage())
	if got := s.statuses()["dead"]; got != 0 {
		t.Errorf("%d jobs died of the outage", got)
	}
	heal()
	stop()
	s.drained(generous + 2*pauseMax)
	if worst := value[float64](t, db, `SELECT extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))::float8 FROM `+db.Table+` WHERE kind = 'healthy' AND created_at > $1`, began); worst > 10 {
		t.Errorf("p99 of the healthy kind: %.1f s from enqueue to done", worst)
	}
	attempts := value[int](t, db, `SELECT max(attempts) FROM `+db.Table)
	if attempts > 4 {
		t.Errorf("a job used up %d attempts in one outage", attempts)
	}
	s.arrived(other, "healthy")
	dup := s.arrived(broken, "broken")
	t.Logf("%d jobs, %d duplicates, at most %d attempts", len(s.committed["broken"]), dup, attempts)
}

// pauseMax is the longest pause between two probes.
const pauseMax = 30 * time.Second

// hold lets a fault last; that is the one thing that only time can do.
func hold(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// flow commits jobs of each kind one by one, that many per second, until it is stopped.
func (s *shop) flow(perSecond int, kinds ...string) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var writers sync.WaitGroup
	for _, kind := range kinds {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(2, 2))
			tick := time.NewTicker(time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if err := s.transaction(kind, 1, false, rnd); err != nil {
						s.t.Errorf("enqueue: %v", err)
						return
					}
				}
			}
		})
	}
	return func() { cancel(); writers.Wait() }
}
