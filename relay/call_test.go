package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// faulty is a sink whose Check panics, or hangs until it is told to end, by its address.
type faulty struct {
	script
	end   chan struct{}
	calls atomic.Int64
}

func (f *faulty) Check(_ context.Context, address string) error {
	f.calls.Add(1)
	switch address {
	case "panics":
		panic("boom")
	case "hangs":
		<-f.end
	}
	return nil
}

// A Check that panics is a place that is away; one that never returns is given up, and no more are made than a bound.
func TestChecksThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{sink: "s", what: "check", most: 2, log: slog.New(slog.DiscardHandler)}
		f := &faulty{end: make(chan struct{})}
		check := func(address string) (took time.Duration, err error) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), probeTimeout)
			defer cancel()
			err = c.check(ctx, f, address)
			return time.Since(start), err
		}
		if _, err := check("fine"); err != nil {
			t.Errorf("a check that passes: %v", err)
		}
		if _, err := check("panics"); !errors.Is(err, errPanicked) {
			t.Errorf("a check that panics: got %v, want %v", err, errPanicked)
		}
		for range 2 {
			if took, err := check("hangs"); !errors.Is(err, errHangs) || took != probeTimeout+grace {
				t.Errorf("a check that hangs: got %v after %v, want %v after %v", err, took, errHangs, probeTimeout+grace)
			}
		}
		n := f.calls.Load()
		if took, err := check("fine"); !errors.Is(err, errTooManyHang) || took > 0 || f.calls.Load() != n {
			t.Errorf("beside two that hang: got %v after %v", err, took)
		}
		close(f.end)
		synctest.Wait()
		if _, err := check("fine"); err != nil {
			t.Errorf("after they ended: %v", err)
		}
	})
}

// Checks of one sink that hang keep no other sink from being probed, and no relay from ending.
func TestHangingChecksDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{end: make(chan struct{})}
		c := &caller{sink: "bad", what: "check", most: probesAtOnce, log: slog.New(slog.DiscardHandler)}
		p := newPauses(slog.New(slog.DiscardHandler), func(ctx context.Context, at place) error {
			if at.sink == "bad" {
				return c.check(ctx, f, "hangs")
			}
			return nil
		}, func(place) {})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.run(ctx); close(ended) }()
		for i := range 3 * probesAtOnce {
			p.fail([]place{{"bad", string(rune('a' + i))}}, "bad:{key}", sinks.Unavailable, errAway)
		}
		time.Sleep(time.Second)
		good := place{"good", ""}
		p.fail([]place{good}, "good:a", sinks.Unavailable, errAway)
		time.Sleep(time.Second)
		synctest.Wait()
		if !p.open(good) {
			t.Error("another sink isn't probed")
		}
		time.Sleep(10 * time.Minute)
		if n := f.calls.Load(); n > 2*probesAtOnce {
			t.Errorf("%d checks hang at once", n)
		}
		start := time.Now()
		stop()
		<-ended
		if took := time.Since(start); took > grace {
			t.Errorf("it ends after %v", took)
		}
		close(f.end)
		synctest.Wait()
	})
}
