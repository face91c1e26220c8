package stage

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Build makes a relay at path out, with go build's flags.
func Build(out string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", out, "github.com/jobrelay/relay/cmd/relay")
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build relay: %w\n%s", err, text)
	}
	return nil
}

// Process is one of the relay's commands, running. It ends with the test, which fails when it raced or panicked.
type Process struct {
	Cmd   *exec.Cmd
	Admin string        // host:port, for Get
	Log   string        // file with everything that it wrote
	Ended chan struct{} // closed at its end

	t testing.TB
}

// Start runs a command with nothing in its environment but env, PATH and a home of its own. log is the file for its
// output.
func Start(t testing.TB, log, binary string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, Log: log, Ended: make(chan struct{}), Cmd: exec.Command(binary, args...)}
	p.Cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	p.Cmd.Stdout, p.Cmd.Stderr = out, out
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.launch(out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.cleanUp)
	return p
}

// launch starts the process and waits for its end in a goroutine with a thread of its own: the process dies with the
// thread that started it, so that none outlives a test binary that is killed.
func (p *Process) launch(out *os.File) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.Cmd.Start()
		started <- err
		if err == nil {
			_ = p.Cmd.Wait()
		}
		out.Close()
		close(p.Ended)
	}()
	return <-started
}

func (p *Process) cleanUp() {
	_ = p.Cmd.Process.Signal(syscall.SIGCONT)
	if p.t.Failed() {
		_ = p.Cmd.Process.Signal(syscall.SIGQUIT) // it writes what its goroutines wait for
		select {
		case <-p.Ended:
		case <-time.After(5 * time.Second):
		}
	}
	_ = p.Cmd.Process.Kill()
	<-p.Ended
	text := p.Output()
	if p.t.Failed() {
		p.t.Logf("the relay ended with %v and wrote:\n%s", p.Cmd.ProcessState, p.Tail())
	}
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		p.t.Errorf("the relay raced or panicked:\n%s", text)
	}
}

// Output is everything that it has written.
func (p *Process) Output() string {
	b, _ := os.ReadFile(p.Log)
	return string(b)
}

// Tail is the end of its output.
func (p *Process) Tail() string {
	text := p.Output()
	return text[max(0, len(text)-40000):]
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v\n%s", s, err, p.Tail())
	}
}

// Kill ends it as a crash would.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}

// Terminate asks it to drain, waits, and returns its exit code.
func (p *Process) Terminate(limit time.Duration) int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait(limit)
}

// Wait waits for its end and returns its exit code.
func (p *Process) Wait(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.Ended:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("the relay did not end within %v:\n%s", limit, p.Tail())
		return -1
	}
}

// Alive says whether it hasn't ended yet.
func (p *Process) Alive() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get asks its admin server: status and body, or 0 and the error.
func (p *Process) Get(path string) (int, string) {
	resp, err := client.Get("http://" + p.Admin + path)
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

// FreeAddr is a local address that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
