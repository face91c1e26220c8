package relay

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrelay/relay/sinks"
)

// A copy made by replay has its original's time: counting it would say that jobs take days.
func TestAckTimeLeavesCopiesOut(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := newMetrics(reg, []string{"s"})
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
