package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/label"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// fake gives figures as a store would, or hangs.
type fake struct {
	figures chan claim.Figures
	err     error
}

func (f fake) Figures(ctx context.Context) (claim.Figures, error) {
	select {
	case figures := <-f.figures:
		return figures, f.err
	case <-ctx.Done():
		return claim.Figures{}, ctx.Err()
	}
}

func figures(kinds ...claim.KindFigures) claim.Figures {
	return claim.Figures{At: time.Now(), Kinds: kinds}
}

var ours = Routes{
	Serves: func(kind string) bool { return !strings.HasPrefix(kind, "alien") },
	Closes: func(kind string) bool { return kind == "a" },
}

func metricsOf(t *testing.T, s *Stats) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s)
	text, err := testutil.CollectAndFormat(reg, expfmt.TypeTextPlain, "relay_lag_seconds", "relay_jobs", "relay_closed_keys")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMetricsShowServedKinds(t *testing.T) {
	t.Parallel()
	s := NewStats(StatsOptions{Routes: ours, Kinds: []string{"known"}})
	s.keep(figures(
		claim.KindFigures{Kind: "a", Ready: 7, Due: 5, Running: 2, Dead: 1, ClosedKeys: 3, OldestDueSeconds: 1.5},
		claim.KindFigures{Kind: "b", ClosedKeys: 4},
		claim.KindFigures{Kind: "alien", Ready: 9, OldestDueSeconds: 99}))
	text := metricsOf(t, s)
	for _, want := range []string{
		`relay_jobs{kind="a",status="ready"} 7`, `relay_jobs{kind="a",status="due"} 5`, `relay_jobs{kind="a",status="running"} 2`,
		`relay_jobs{kind="a",status="dead"} 1`, `relay_lag_seconds{kind="a"} 1.5`,
		`relay_closed_keys{kind="a"} 3`,
		`relay_jobs{kind="known",status="ready"} 0`, `relay_lag_seconds{kind="known"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "alien") {
		t.Errorf("somebody else's kind shows:\n%s", text)
	}
	s.keep(figures()) // all of a's jobs have gone
	if text := metricsOf(t, s); !strings.Contains(text, `relay_jobs{kind="a",status="ready"} 0`) {
		t.Errorf("a kind without jobs vanishes:\n%s", text)
	}
}

func TestMetricsBoundKinds(t *testing.T) {
	t.Parallel()
	s := NewStats(StatsOptions{Routes: ours})
	var kinds []claim.KindFigures
	for i := range 3 * label.MaxKinds {
		kinds = append(kinds, claim.KindFigures{Kind: fmt.Sprintf("k%04d", i), Ready: 1, OldestDueSeconds: float64(i)})
	}
	kinds = append(kinds, claim.KindFigures{Kind: "bytes \xff"}, claim.KindFigures{Kind: label.Other, Ready: 5})
	s.keep(figures(kinds...))
	if n := testutil.CollectAndCount(s, "relay_lag_seconds"); n != label.MaxKinds+1 {
		t.Errorf("%d kinds, want %d and the rest", n, label.MaxKinds)
	}
	want := fmt.Sprintf(`relay_jobs{kind="_other",status="ready"} %d`, 2*label.MaxKinds+5)
	if text := metricsOf(t, s); !strings.Contains(text, want) || !strings.Contains(text, `relay_lag_seconds{kind="_other"} 599`) {
		t.Errorf("no %s in\n%s", want, text[:400])
	}
}

func TestOldFiguresAreLeftOut(t *testing.T) {
	t.Parallel()
	s := NewStats(StatsOptions{Routes: ours})
	if n := testutil.CollectAndCount(s); n != 1 {
		t.Errorf("%d metrics before the first reading, want the age alone", n)
	}
	s.keep(figures(claim.KindFigures{Kind: "a"}))
	if n := testutil.CollectAndCount(s, "relay_jobs"); n != 4 {
		t.Errorf("%d, want 4", n)
	}
	s.mu.Lock()
	s.read = time.Now().Add(-MaxAge - time.Second)
	s.mu.Unlock()
	if n := testutil.CollectAndCount(s); n != 1 {
		t.Errorf("%d metrics from old figures, want the age alone", n)
	}
	if _, age, ok := s.Status(); !ok || age < MaxAge {
		t.Errorf("the page gets no old figures: %v, %v", age, ok)
	}
}

func TestStatsRead(t *testing.T) {
	t.Parallel()
	source := fake{figures: make(chan claim.Figures)}
	s := NewStats(StatsOptions{Store: source, Source: "shop", Routes: ours, Every: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	source.figures <- figures(claim.KindFigures{Kind: "a", Ready: 1})
	source.figures <- figures(claim.KindFigures{Kind: "a", Ready: 2}) // taken once the first has been kept
	status, _, ok := s.Status()
	if !ok || status.Source != "shop" || len(status.Kinds) != 1 || status.Kinds[0].Ready < 1 {
		t.Errorf("%+v, %v", status, ok)
	}
	cancel()
	<-ended // also while a reading hangs
}

func TestStatsGoOnAfterErrors(t *testing.T) {
	t.Parallel()
	source := fake{figures: make(chan claim.Figures), err: errors.New("away")}
	s := NewStats(StatsOptions{Store: source, Routes: ours, Every: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	for range 3 {
		source.figures <- figures()
	}
	cancel()
	<-ended
	if _, _, ok := s.Status(); ok {
		t.Error("figures of a failed reading were kept")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	f := figures(
		claim.KindFigures{Kind: "a", Due: 1, Ready: 1, OldestDueSeconds: 3},
		claim.KindFigures{Kind: "alien", Due: 1, Ready: 1, OldestDueSeconds: 30})
	s := NewStatus("shop", f, ours)
	if s.LagSeconds != 3 || !*s.Kinds[0].Routed || *s.Kinds[1].Routed {
		t.Errorf("with routes: %+v", s)
	}
	s = NewStatus("shop", f, Routes{})
	if s.LagSeconds != 30 || s.Kinds[0].Routed != nil {
		t.Errorf("without routes: %+v", s)
	}
}
