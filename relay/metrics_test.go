package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

func nowhere(string) []string { return nil }

// The first dead job of a kind is an increase from 0, which an alert sees: its series is there before, of kinds that routes
// name from the start.
func TestDeadJobsAreCountedFromZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	run(t, testdb.New(t), options{
		routes: []Route{{Kind: "exact", To: []string{"a:x", "b:"}}, {Kind: "*", To: []string{"b:"}}},
		sinks:  map[string]sinks.Sink{"a": &script{}, "b": &script{}},
		change: func(c *Config, _ *claim.Options) { c.Registerer = reg },
	})
	want := `# HELP relay_jobs_dead_total Jobs that died, by the destination that decided and the reason.
# TYPE relay_jobs_dead_total counter
relay_jobs_dead_total{destination="",kind="exact",reason="lease_expired"} 0
relay_jobs_dead_total{destination="a:x",kind="exact",reason="attempts"} 0
relay_jobs_dead_total{destination="a:x",kind="exact",reason="rejected"} 0
relay_jobs_dead_total{destination="b:",kind="exact",reason="attempts"} 0
relay_jobs_dead_total{destination="b:",kind="exact",reason="rejected"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "relay_jobs_dead_total"); err != nil {
		t.Error(err)
	}
}

// A copy made by replay has its original's time: counting it would say that jobs take days.
func TestAckTimeLeavesCopiesOut(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := newMetrics(reg, []string{"s"}, nowhere)
	batch := []sinks.Message{{Kind: "k", Time: time.Now()}, {Kind: "k", Time: time.Now().Add(-time.Hour), Replay: 7}}
	m.published("s", time.Millisecond, batch, []sinks.Result{{Outcome: sinks.Accepted}, {Outcome: sinks.Accepted}})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "relay_enqueue_to_ack_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() > 60 {
			t.Errorf("%d observed, %v s in all", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("no such metric")
}

// A database in SQL_ASCII may hold kinds that are no UTF-8: every place that counts a kind takes them.
func TestKindsOfAnyBytes(t *testing.T) {
	t.Parallel()
	m := newMetrics(prometheus.NewRegistry(), []string{"s"}, nowhere)
	l := claim.Lease{ID: 1, Kind: "caf\xe9"}
	m.claimed([]claim.Lease{l})
	m.published("s", time.Millisecond, []sinks.Message{{Kind: l.Kind}}, []sinks.Result{{Outcome: sinks.Accepted}})
	to := &destination{text: "s:"}
	m.settled([]verdict{{&delivery{lease: &l, attempts: []attempt{{to: to}}}, claim.Outcome{Verdict: claim.Dead}, reasonRejected, to}})
	m.swept(claim.Swept{Reaped: map[string]int{l.Kind: 1}, Dead: map[string]int{l.Kind: 1}})
	if n := testutil.ToFloat64(m.jobsClaimed.WithLabelValues("caf\uFFFD")); n != 1 {
		t.Errorf("claimed: got %v, want 1", n)
	}
}
