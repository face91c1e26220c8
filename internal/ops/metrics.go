package ops

import (
	"maps"
	"slices"
	"time"

	"github.com/jobrelay/relay/internal/label"
	"github.com/prometheus/client_golang/prometheus"
)

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
	for _, at := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[at]
		gauge(descLag, k.OldestDueSeconds, at)
		gauge(descJobs, float64(k.Ready), at, "ready")
		gauge(descJobs, float64(k.Due), at, "due")
		gauge(descJobs, float64(k.Running), at, "running")
		gauge(descJobs, float64(k.Dead), at, "dead")
		if k.ClosedKeys > 0 || at != label.Other && s.o.Routes.Closes(at) {
			gauge(descClosed, float64(k.ClosedKeys), at)
		}
	}
}

// byLabel folds the latest figures into one entry per label: served kinds only, zeros for kinds without jobs.
func (s *Stats) byLabel() map[string]Kind {
	known := s.labels.Known()
	out := make(map[string]Kind, len(known))
	for _, k := range known {
		out[k] = Kind{}
	}
	for _, f := range s.latest.Kinds {
		if !s.o.Routes.Serves(f.Kind) {
			continue
		}
		at, _ := s.labels.Of(f.Kind)
		k := out[at]
		k.Ready += f.Ready
		k.Due += f.Due
		k.Running += f.Running
		k.Dead += f.Dead
		if s.o.Routes.Closes(f.Kind) {
			k.ClosedKeys += f.ClosedKeys
		}
		k.OldestDueSeconds = max(k.OldestDueSeconds, f.OldestDueSeconds)
		out[at] = k
	}
	return out
}
