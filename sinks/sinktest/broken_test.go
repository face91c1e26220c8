package sinktest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

const flawVariable = "SINKTEST_FLAW"

// TestBrokenSinksFail: the suite would be worth nothing if it passed these. A failing subtest fails its parent, so each
// broken sink meets the case that must catch it in a process of its own.
func TestBrokenSinksFail(t *testing.T) {
	if os.Getenv(flawVariable) != "" {
		return // the child below
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flaw, want := range flaws {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			child := exec.CommandContext(ctx, self, "-test.run=^TestChild$/^"+want.caughtBy+"$", "-test.v", "-test.timeout=90s")
			child.Env = append(os.Environ(), flawVariable+"="+flaw)
			out, err := child.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestChild/"+want.caughtBy+" ")) {
				t.Errorf("the case %q doesn't catch it (%v):\n%s", want.caughtBy, err, out)
			}
		})
	}
}

// TestChild runs the suite on one broken sink; it does nothing unless TestBrokenSinksFail has started it.
func TestChild(t *testing.T) {
	flaw, ok := flaws[os.Getenv(flawVariable)]
	if !ok {
		return
	}
	sinktest.SetPatience(10 * time.Second)
	sinktest.Run(t, harness(func(good *memorySink) sinks.Sink {
		sink := flaw.sink
		sink.memorySink = good
		return sink
	}))
}
