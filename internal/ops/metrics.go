package ops

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxKinds bounds the kinds that are labels; those seen first keep theirs, all others share otherKind.
const (
	maxKinds  = 200
	otherKind = "_other"
)

// labels gives kinds their label and remembers which have one, so that a kind whose jobs are all gone reads 0 and
// doesn't vanish.
type labels struct{ known map[string]bool }

func (l *labels) of(kind string) string {
	kind = strings.ToValidUTF8(kind, "\uFFFD") // a database in SQL_ASCII takes any bytes, a label doesn't
	if l.known[kind] {
		return kind
	}
	if len(l.known) >= maxKinds {
		return otherKind
	}
	if l.known == nil {
		l.known = map[string]bool{}
	}
	l.known[kind] = true
	return kind
}

var (
	descLag = prometheus.NewDesc("relay_lag_seconds",
		"Age of the oldest due job of the kind, counted from when it was enqueued.", []string{"kind"}, nil)
	descJobs = prometheus.NewDesc("relay_jobs",
		"Jobs by kind and status (due are those of ready whose time has come); a count stops at 100000.", []string{"kind", "status"}, nil)
	descClosed = prometheus.NewDesc("relay_closed_keys",
		"Keys that a dead job holds, by kinds whose route keeps the order of keys; a count stops at 10000.", []string{"kind"}, nil)
	descAge = prometheus.NewDesc("relay_stats_age_seconds",
		"Age of the figures read from the database; those older than 30 s are left out.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *Stats) Describe(ch chan<- *prometheus.Desc) {
	ch <- descLag
	ch <- descJobs
	ch <- descClosed
	ch <- descAge
}

// Collect implements prometheus.Collector. It asks nobody: a scrape answers while the database hangs.
func (s *Stats) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	age, kinds := time.Since(s.started), map[string]Kind(nil)
	if !s.read.IsZero() {
		age = time.Since(s.read)
		if age <= MaxAge {
			kinds = s.byLabel()
		}
	}
	s.mu.Unlock()

	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descAge, age.Seconds())
	for _, label := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[label]
		gauge(descLag, k.OldestDueSeconds, label)
		gauge(descJobs, float64(k.Ready), label, "ready")
		gauge(descJobs, float64(k.Due), label, "due")
		gauge(descJobs, float64(k.Running), label, "running")
		gauge(descJobs, float64(k.Dead), label, "dead")
		if k.ClosedKeys > 0 || label != otherKind && s.o.Routes.Closes(label) {
			gauge(descClosed, float64(k.ClosedKeys), label)
		}
	}
}

// byLabel folds the latest figures into one entry per label: served kinds only, zeros for kinds without jobs.
func (s *Stats) byLabel() map[string]Kind {
	out := make(map[string]Kind, len(s.labels.known))
	for k := range s.labels.known {
		out[k] = Kind{}
	}
	for _, f := range s.latest.Kinds {
		if !s.o.Routes.Serves(f.Kind) {
			continue
		}
		label := s.labels.of(f.Kind)
		k := out[label]
		k.Ready += f.Ready
		k.Due += f.Due
		k.Running += f.Running
		k.Dead += f.Dead
		if s.o.Routes.Closes(f.Kind) {
			k.ClosedKeys += f.ClosedKeys
		}
		k.OldestDueSeconds = max(k.OldestDueSeconds, f.OldestDueSeconds)
		out[label] = k
	}
	return out
}
