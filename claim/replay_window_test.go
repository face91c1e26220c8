package claim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// A replay waits while relays don't keep up, also after it was interrupted, and goes on as they do.
func TestReplayWaitsForRelays(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 1000)
	r := Replay{Rate: 1000}
	run := func() (stop func() Replayed) {
		ctx, cancel := context.WithCancel(t.Context())
		waits, ended := make(chan struct{}), make(chan Replayed, 1)
		told := sync.OnceFunc(func() { close(waits) })
		go func() {
			r := r
			r.Progress = func(p Replayed) {
				if p.Waiting > 0 {
					told()
				}
			}
			inner := newReplayRun(s, r)
			inner.r.Name, inner.window.most = "n", 300
			if inner.begin(ctx) == nil {
				_ = inner.all(ctx) // ends with an error: ctx does, while it waits
			}
			told() // also when it has ended without waiting
			ended <- inner.done
		}()
		<-waits
		return func() Replayed { cancel(); return <-ended }
	}
	run()()
	first := len(originals(t, db))
	if first == 0 || first > 300 {
		t.Errorf("%d copies with nobody to send them, want at most 300", first)
	}
	run()()
	if n := len(originals(t, db)); n > 300 {
		t.Errorf("%d copies after an interruption, want at most 300", n)
	}
	q := s.Queue(every)
	stop := run()
	drain(t, q)
	eventually(t, "it has gone on", func() bool { drain(t, q); return len(originals(t, db)) == 900 })
	if done := stop(); done.InAll != 900 {
		t.Errorf("%+v", done)
	}
}

// What is paced comes evenly.
func TestPace(t *testing.T) {
	t.Parallel()
	p := pace{rate: 100}
	start := time.Now()
	for range 6 {
		if err := p.wait(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("60 at 100 a second, the first 10 at once: %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
