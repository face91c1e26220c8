package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/jobrelay/relay/internal/stage"
	"github.com/jobrelay/relay/internal/testdb"
)

// generous bounds every wait for a condition; the race detector and two busy cores make everything slow.
const generous = 90 * time.Second

// process is a relay of its own.
type process struct {
	*stage.Process
	t     *testing.T
	cmd   *exec.Cmd
	admin string
	ended chan struct{}
}

// open starts one of the relay's commands.
func open(t *testing.T, binary string, env []string, args ...string) *process {
	t.Helper()
	p := stage.Start(t, filepath.Join(t.TempDir(), "relay.log"), binary, env, args...)
	return &process{Process: p, t: t, cmd: p.Cmd, ended: p.Ended}
}

// settings are RELAY_ variables without the prefix; others are named in full with a leading equals sign.
type settings map[string]string

// with returns a copy with more settings.
func (s settings) with(more settings) settings {
	out := settings{}
	for _, m := range []settings{s, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// start runs `relay run` on the test's table and waits until it is ready.
func start(t *testing.T, db *testdb.DB, s settings) *process {
	t.Helper()
	return startBinary(t, binary, db, s)
}

func startBinary(t *testing.T, binary string, db *testdb.DB, s settings) *process {
	t.Helper()
	p := begin(t, binary, db, s)
	eventually(t, "the relay is ready", func() error {
		select {
		case <-p.ended:
			t.Fatalf("the relay ended at its start:\n%s", p.tail())
		default:
		}
		return p.isReady()
	})
	return p
}

// begin starts it and doesn't wait.
func begin(t *testing.T, binary string, db *testdb.DB, s settings) *process {
	t.Helper()
	admin := stage.FreeAddr(t)
	p := open(t, binary, append(environ(t, db, s), "RELAY_ADMIN_ADDR="+admin), "run")
	p.admin, p.Admin = admin, admin
	return p
}

// environ is all that a relay on the test's table gets to see.
func environ(t *testing.T, db *testdb.DB, s settings) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
		"RELAY_DATABASE_URL=" + db.URL, "RELAY_TABLE=" + db.Table, "RELAY_LOG_FORMAT=text",
		"RELAY_SOURCE=" + db.Schema, "RELAY_POLL_MAX=200ms", "RELAY_RETRY_BASE=200ms", "RELAY_RETRY_MAX=2s",
	}
	for k, v := range s {
		name, whole := strings.CutPrefix(k, "=")
		if !whole {
			name = "RELAY_" + k
		}
		env = append(env, name+"="+v)
	}
	return env
}

// checked runs `relay check`.
func checked(t *testing.T, db *testdb.DB, s settings) (code int, out string) {
	t.Helper()
	cmd := exec.Command(plain, "check")
	cmd.Env = environ(t, db, s)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func (p *process) isReady() error {
	if code, body := p.get("/readyz"); code != http.StatusOK {
		return fmt.Errorf("readyz: %d %s", code, body)
	}
	return nil
}

func (p *process) output() string { return p.Output() }
func (p *process) tail() string   { return p.Tail() }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	p.Signal(s)
}

// kill ends it as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.Kill()
}

// terminate asks it to drain, waits, and returns its exit code.
func (p *process) terminate(limit time.Duration) int {
	p.t.Helper()
	return p.Terminate(limit)
}

func (p *process) get(path string) (int, string) { return p.Get(path) }

// metric adds up the series of that name whose labels include those given, as in `kind=a`.
func (p *process) metric(name string, labels ...string) float64 {
	p.t.Helper()
	var body string
	eventually(p.t, "metrics are served", func() (err error) {
		var code int
		if code, body = p.get("/metrics"); code != http.StatusOK {
			err = fmt.Errorf("metrics: %d %s", code, body)
		}
		return err
	})
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewBufferString(body))
	if err != nil {
		p.t.Fatalf("metrics don't parse: %v\n%s", err, body)
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		have := map[string]bool{}
		for _, l := range m.GetLabel() {
			have[l.GetName()+"="+l.GetValue()] = true
		}
		all := true
		for _, l := range labels {
			all = all && have[l]
		}
		if all {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// eventually waits until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	within(t, generous, what, f)
}

func within(t *testing.T, limit time.Duration, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", limit, what, errors.Join(err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
