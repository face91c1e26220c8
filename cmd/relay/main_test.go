package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/config"
	"go.uber.org/goleak"
)

// asRelay makes the test binary be the relay, for tests that need a process and its signals.
const asRelay = "RUN_AS_RELAY"

func TestMain(m *testing.M) {
	if os.Getenv(asRelay) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// outcome is what a command did.
type outcome struct {
	code     int
	out, err string
	took     time.Duration
}

// relayIn runs one command in this process.
func relayIn(env config.Environ, stdin string, args ...string) outcome {
	var out, err bytes.Buffer
	begin := time.Now()
	code := run(args, env, strings.NewReader(stdin), &out, &err)
	return outcome{code, out.String(), err.String(), time.Since(begin)}
}

// must runs one command and checks its exit code.
func must(t *testing.T, code int, env config.Environ, args ...string) outcome {
	t.Helper()
	o := relayIn(env, "", args...)
	if o.code != code {
		t.Fatalf("relay %s: exit %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), o.code, code, o.out, o.err)
	}
	return o
}

func has(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q: %s", what, w, text)
		}
	}
}

func hasNot(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("%s holds %q: %s", what, w, text)
		}
	}
}
