package relay

import (
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/label"
	"github.com/jobrelay/relay/sinks"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the engine's own figures. Labels come from closed sets: kinds as package label bounds them, and names from the routes.
type metrics struct {
	jobsClaimed *prometheus.CounterVec
	jobsSettled *prometheus.CounterVec
	jobsDead    *prometheus.CounterVec
	publishTime *prometheus.HistogramVec
	ackTime     *prometheus.HistogramVec
	lostLeases  prometheus.Counter
	reaped      *prometheus.CounterVec
	duplicates  *prometheus.CounterVec
	listenerUp  prometheus.Gauge

	kinds label.Kinds
	to    func(kind string) []string // its destinations
}

func newMetrics(reg prometheus.Registerer, sinkNames []string, to func(kind string) []string) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, first float64, n int, label ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, n)}, label)
	}
	m := &metrics{
		to:          to,
		jobsClaimed: counter("relay_jobs_claimed_total", "Jobs claimed.", "kind"),
		jobsSettled: counter("relay_jobs_settled_total", "What became of jobs at each destination.", "kind", "destination", "verdict"),
		jobsDead:    counter("relay_jobs_dead_total", "Jobs that died, by the destination that decided and the reason.", "kind", "destination", "reason"),
		publishTime: histogram("relay_publish_seconds", "Length of one call to a sink, observed once for each outcome in it.", 0.0005, 17, "sink", "outcome"),
		ackTime:     histogram("relay_enqueue_to_ack_seconds", "Time from enqueue (created_at) to a destination's acceptance, with what a job that is to run later waits for. Without copies made by replay.", 0.001, 22, "kind"),
		lostLeases:  prometheus.NewCounter(prometheus.CounterOpts{Name: "relay_lost_leases_total", Help: "Leases that somebody else may have taken before they were settled."}),
		reaped:      counter("relay_reaped_total", "Expired leases that this process ended.", "kind"),
		duplicates:  counter("relay_possible_duplicates_total", "Messages that were sent without a word from the broker; they are sent again.", "sink"),
		listenerUp:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "relay_listener_up", Help: "1 while the relay hears enqueue notifications."}),
	}
	reg.MustRegister(m.jobsClaimed, m.jobsSettled, m.jobsDead, m.publishTime, m.ackTime, m.lostLeases, m.reaped, m.duplicates, m.listenerUp)
	for _, name := range sinkNames {
		m.duplicates.WithLabelValues(name)
		m.publishTime.WithLabelValues(name, sinks.Accepted.String())
	}
	return m
}

// kind is the label of a kind. The first time its series begin, at 0: a rate or an increase sees no jump from nothing.
func (m *metrics) kind(kind string) string {
	at, first := m.kinds.Of(kind)
	if !first {
		return at
	}
	m.jobsClaimed.WithLabelValues(at)
	m.reaped.WithLabelValues(at)
	m.ackTime.WithLabelValues(at)
	m.jobsDead.WithLabelValues(at, "", reasonLease)
	for _, to := range m.to(kind) {
		m.jobsDead.WithLabelValues(at, to, reasonRejected)
		m.jobsDead.WithLabelValues(at, to, reasonAttempts)
	}
	return at
}

func (m *metrics) claimed(leases []claim.Lease) {
	n := map[string]int{}
	for i := range leases {
		n[leases[i].Kind]++
	}
	for kind, count := range n {
		m.jobsClaimed.WithLabelValues(m.kind(kind)).Add(float64(count))
	}
}

func (m *metrics) lost(n int) { m.lostLeases.Add(float64(n)) }

// published observes one call to a sink.
func (m *metrics) published(sink string, took time.Duration, batch []sinks.Message, results []sinks.Result) {
	var outcomes [5]int
	for i, r := range results {
		outcomes[min(int(r.Outcome), len(outcomes)-1)]++
		if r.Outcome == sinks.Accepted && batch[i].Replay == 0 { // a copy has the time of its original
			m.ackTime.WithLabelValues(m.kind(batch[i].Kind)).Observe(max(0, time.Since(batch[i].Time).Seconds()))
		}
	}
	for o, n := range outcomes {
		if n > 0 {
			m.publishTime.WithLabelValues(sink, sinks.Outcome(o).String()).Observe(took.Seconds())
		}
	}
	m.duplicates.WithLabelValues(sink).Add(float64(outcomes[sinks.Unknown]))
}

// settledKey is one series of relay_jobs_settled_total.
type settledKey struct{ kind, destination, verdict string }

// settled counts verdicts that were written, by destination.
func (m *metrics) settled(verdicts []verdict) {
	n := map[settledKey]int{}
	for _, v := range verdicts {
		kind := m.kind(v.lease.Kind)
		for _, a := range v.attempts {
			word := v.out.Verdict
			if a.result.Outcome == sinks.Accepted {
				word = claim.Done
			}
			n[settledKey{kind, a.to.text, word.String()}]++
		}
		if v.out.Verdict == claim.Dead {
			m.jobsDead.WithLabelValues(kind, v.cause.text, v.reason).Inc()
		}
	}
	for k, count := range n {
		m.jobsSettled.WithLabelValues(k.kind, k.destination, k.verdict).Add(float64(count))
	}
}

// swept counts what a sweep reaped.
func (m *metrics) swept(s claim.Swept) {
	for kind, n := range s.Reaped {
		m.reaped.WithLabelValues(m.kind(kind)).Add(float64(n))
	}
	for kind, n := range s.Dead {
		m.jobsDead.WithLabelValues(m.kind(kind), "", reasonLease).Add(float64(n))
	}
}

// stateCollector exports which sinks and destinations are up, read when scraped.
type stateCollector struct {
	health     func() Health
	sink, dest *prometheus.Desc
}

func newStateCollector(health func() Health) *stateCollector {
	return &stateCollector{
		health: health,
		sink:   prometheus.NewDesc("relay_sink_up", "1 while the sink isn't paused.", []string{"sink"}, nil),
		dest:   prometheus.NewDesc("relay_destination_up", "1 while the destination and its sink aren't paused.", []string{"destination"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.sink; ch <- c.dest }

// Collect implements [prometheus.Collector].
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	h := c.health()
	for name, s := range h.Sinks {
		ch <- prometheus.MustNewConstMetric(c.sink, prometheus.GaugeValue, up(s.Up), name)
	}
	for name, s := range h.Destinations {
		ch <- prometheus.MustNewConstMetric(c.dest, prometheus.GaugeValue, up(s.Up), name)
	}
}

func up(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
