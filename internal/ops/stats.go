package ops

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/label"
)

// MaxAge is how old figures may be before they are left out of the metrics rather than shown frozen.
const MaxAge = 30 * time.Second

// Figurer reads figures; a *claim.Store does.
type Figurer interface {
	Figures(ctx context.Context) (claim.Figures, error)
}

// StatsOptions configure [Stats]; Store and Routes are required.
type StatsOptions struct {
	Store  Figurer
	Source string
	Routes Routes
	Kinds  []string      // kinds known by name from the routes: they are in the metrics from the start, as zeros
	Every  time.Duration // between two readings; default 5s
	Log    *slog.Logger  // default: discard
}

// Stats keeps the latest figures. It is a prometheus.Collector.
type Stats struct {
	o       StatsOptions
	started time.Time

	mu     sync.Mutex
	latest claim.Figures
	read   time.Time   // by our clock; zero before the first reading
	labels label.Kinds // a kind whose jobs are all gone reads 0 and doesn't vanish
}

// NewStats prepares the figures; Run reads them.
func NewStats(o StatsOptions) *Stats {
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stats{o: o, started: time.Now()}
	for _, k := range o.Kinds {
		s.labels.Of(k)
	}
	return s
}

// Run reads the figures until ctx ends. A reading that was slow is followed by a longer pause, so that the figures
// cost at most a fifth of one connection's time.
func (s *Stats) Run(ctx context.Context) {
	failing := false
	for {
		start := time.Now()
		figures, err := s.read1(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			s.keep(figures)
		case !failing: // once per outage: the relay itself reports the database's state
			s.o.Log.Warn("reading figures failed", "error", err)
		}
		failing = err != nil
		pause := min(max(s.o.Every, 4*time.Since(start)), MaxAge/2)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause + rand.N(pause/10+1)):
		}
	}
}

func (s *Stats) read1(ctx context.Context) (claim.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.o.Store.Figures(ctx)
}

func (s *Stats) keep(f claim.Figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest, s.read = f, time.Now()
	for _, k := range f.Kinds {
		if s.o.Routes.Serves(k.Kind) {
			s.labels.Of(k.Kind)
		}
	}
}

// Status returns the latest figures and their age; false before the first reading.
func (s *Stats) Status() (Status, time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.IsZero() {
		return Status{}, time.Since(s.started), false
	}
	return NewStatus(s.o.Source, s.latest, s.o.Routes), time.Since(s.read), true
}
