package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jobrelay/relay/internal/services/host"
)

// machine is this command with a cache folder of its own, which borrows the downloads of this machine's, so that what
// it leaves there and what it runs can be told from others'.
type machine struct {
	t     *testing.T
	cache string
	env   []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real services; -short leaves it out")
	}
	user := host.Unprivileged()
	shared, err := host.CacheDir(user)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := host.NewFolder(t.Context(), shared, "machine", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Remove() })
	m := &machine{t: t, cache: filepath.Join(folder.Path, "relay")}
	for _, dir := range []string{folder.Path, m.cache} {
		if err := host.OpenDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{"postgres-*-*.*", "kafka-*", "elasticmq-*"} {
		downloads, _ := filepath.Glob(filepath.Join(shared, pattern))
		for _, download := range downloads {
			if !strings.HasSuffix(download, ".lock") && !strings.HasSuffix(download, ".part") {
				os.Symlink(download, filepath.Join(m.cache, filepath.Base(download)))
			}
		}
	}
	m.env = append(os.Environ(), "XDG_CACHE_HOME="+folder.Path)
	build := exec.Command("go", "build", "-o", m.path("services"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.cache, name) }

// run runs the command and returns its output and status.
func (m *machine) run(args ...string) (stdout, stderr string, status int) {
	m.t.Helper()
	cmd := exec.Command(m.path("services"), args...)
	cmd.Env = m.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// wantNothing checks that no server of this machine runs and that it has left no state.
func (m *machine) wantNothing() {
	m.t.Helper()
	waitFor(m.t, "no server is left running", func() bool { return len(m.processes()) == 0 })
	left, err := filepath.Glob(m.path("run/*-*"))
	if err != nil || len(left) > 0 {
		m.t.Errorf("state folders left: %v, %v", left, err)
	}
}

// processes are the command lines that name the cache folder.
func (m *machine) processes() (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), m.cache) {
			lines = append(lines, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return lines
}

func TestUpKeepsOneSetAndDownStopsIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	t.Cleanup(func() { m.run("down") })
	first, log, status := m.run("up", "--only", "postgres,sqs")
	if status != 0 {
		t.Fatalf("up: got status %d\n%s", status, log)
	}
	if lines := strings.Count(first, "\n"); lines != 2 || !strings.Contains(first, "export RELAY_TEST_POSTGRES='postgres://") || !strings.Contains(first, "export RELAY_TEST_SQS='http://") {
		t.Errorf("up: got\n%s\nwant the exports of Postgres and SQS", first)
	}
	second, log, status := m.run("up")
	if status != 0 || second != first || !strings.Contains(log, "running already") {
		t.Errorf("second up: got status %d, log %q and\n%s\nwant the first one's exports\n%s", status, log, second, first)
	}
	if _, log, status := m.run("down"); status != 0 {
		t.Errorf("down: got status %d\n%s", status, log)
	}
	m.wantNothing()
	if _, log, status := m.run("down"); status != 0 || !strings.Contains(log, "no services") {
		t.Errorf("second down: got status %d, log %q", status, log)
	}
}

func TestRunFailsWithTheLogOfAServiceThatDoesNotStart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bin := m.path("bin")
	if err := host.OpenDir(bin); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "java"), []byte("#!/bin/sh\necho this java is broken >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.env = append(m.env, "RELAY_TEST_ENGINE=native", "PATH="+bin+":"+os.Getenv("PATH"))
	out, log, status := m.run("run", "--only", "postgres,sqs", "--", "echo", "ran")
	if status != 1 || strings.Contains(out, "ran") || !strings.Contains(log, "this java is broken") {
		t.Errorf("run: got status %d, output %q, log\n%s\nwant 1, no run, and what java said", status, out, log)
	}
	m.wantNothing()
}

func TestRunStopsEverythingWhenItIsTerminatedWhileItStarts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	cmd := exec.Command(m.path("services"), "run", "--only", "postgres,rabbitmq", "--", "true")
	cmd.Env, cmd.Stderr = m.env, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a server has been started", func() bool { return len(m.processes()) > 1 })
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	// The start of everything may have ended before the signal came: then the run was simply successful.
	if code := cmd.ProcessState.ExitCode(); code != 143 && code != 0 {
		t.Errorf("run: got status %d, want 143", code)
	}
	m.wantNothing()
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"run"}, {"run", "--"}, {"run", "true"}, {"up", "now"}, {"other"}, {"up", "--only", "mysql"}, {"run", "--only", "sqs", "true"}} {
		if status, err := command(quiet, args); status != 2 || err == nil {
			t.Errorf("%q: got status %d and error %v, want 2 and an error", args, status, err)
		}
	}
}
