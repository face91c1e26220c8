package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/jobrelay/relay/internal/testdb"
)

// generous bounds every wait for a condition; the race detector and two busy cores make everything slow.
const generous = 90 * time.Second

// process is a relay of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	admin string
	log   string // file with everything that it wrote
	ended chan struct{}
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
	p := &process{t: t, admin: freeAddr(t), log: filepath.Join(t.TempDir(), "relay.log"), ended: make(chan struct{})}
	p.cmd = exec.Command(binary, "run")
	p.cmd.Env = append(environ(t, db, s), "RELAY_ADMIN_ADDR="+p.admin)
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.launch(out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.cleanUp)
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

// launch starts the process and waits for its end in a goroutine with a thread of its own: the process dies with the
// thread that started it, so that none outlives a test binary that is killed.
func (p *process) launch(out *os.File) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
		out.Close()
		close(p.ended)
	}()
	return <-started
}

func (p *process) cleanUp() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	if p.t.Failed() {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it writes what its goroutines wait for
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	text := p.output()
	if p.t.Failed() {
		p.t.Logf("the relay ended with %v and wrote:\n%s", p.cmd.ProcessState, p.tail())
	}
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		p.t.Errorf("the relay raced or panicked:\n%s", text)
	}
}

func (p *process) output() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

func (p *process) tail() string {
	text := p.output()
	return text[max(0, len(text)-40000):]
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// kill ends it as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// terminate asks it to drain, waits, and returns its exit code.
func (p *process) terminate(limit time.Duration) int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("the relay did not end within %v of SIGTERM:\n%s", limit, p.tail())
		return -1
	}
}

var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) get(path string) (int, string) {
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

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

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
