package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/internal/testlog"
)

// generous bounds every wait for a condition.
const generous = time.Minute

// process is a relay of its own, for what signals do.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	admin    string
	out, err testlog.Buffer
	ended    chan struct{}
}

// start runs a command in a process of its own.
func start(t *testing.T, env config.Environ, args ...string) *process {
	t.Helper()
	p := &process{t: t, admin: env["RELAY_ADMIN_ADDR"], cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = []string{asRelay + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("relay %v wrote:\n%s", args, p.err.String())
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("the relay did not end within %v", limit)
		return -1
	}
}

var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) get(path string) (code int, body string) {
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// ready waits for this code of /readyz and returns the answer.
func (p *process) ready(code int) string {
	p.t.Helper()
	var body string
	eventually(p.t, "readyz", func() bool {
		var got int
		got, body = p.get("/readyz")
		return got == code
	})
	if !json.Valid([]byte(body)) {
		p.t.Errorf("readyz is no JSON: %s", body)
	}
	return body
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > generous {
			t.Fatalf("not within %v: %s", generous, what)
		}
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// on is an environment for commands on a test's table.
func on(db *testdb.DB, more config.Environ) config.Environ {
	env := config.Environ{"RELAY_DATABASE_URL": db.URL, "RELAY_TABLE": db.Table, "RELAY_ADMIN_ADDR": "off", "RELAY_SOURCE": "shop"}
	maps.Copy(env, more)
	return env
}

// silent is the address of a server that takes connections and never answers.
func silent(t *testing.T) string { return hearing(t, func() {}) }

// hearing is a silent server that tells when something was sent to it.
func hearing(t *testing.T, heard func()) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := func(conn net.Conn) {
		defer conn.Close()
		if n, _ := conn.Read(make([]byte, 1)); n > 0 {
			heard()
		}
		_, _ = io.Copy(io.Discard, conn)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				all.Go(func() { listen(conn) })
			}
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return ln.Addr().String()
}
