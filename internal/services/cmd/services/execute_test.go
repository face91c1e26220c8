package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func TestExecuteReturnsTheCommandsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		args   []string
		status int
		failed bool
	}{
		{"success", []string{"true"}, 0, false},
		{"failure", []string{"sh", "-c", "exit 7"}, 7, false},
		{"sees the variables", []string{"sh", "-c", `test "$RELAY_TEST_A" = "one two"`}, 0, false},
		{"killed by a signal", []string{"sh", "-c", "kill -KILL $$"}, 137, false},
		{"no such command", []string{"/no/such/command"}, 127, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, err := execute(quiet, nil, []stack.Variable{{Name: "RELAY_TEST_A", Value: "one two"}}, c.args)
			if status != c.status || (err != nil) != c.failed {
				t.Errorf("execute: got status %d and error %v, want %d and failed %t", status, err, c.status, c.failed)
			}
		})
	}
}

// A signal reaches everything that the command has started, and what ignores it goes with the command.
func TestExecuteLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		script  string
		signals []os.Signal
		status  int
	}{
		{"what a command leaves behind", `sleep 300 & echo $! > pid`, nil, 0},
		{"TERM", `sleep 300 & echo $! > pid; wait`, []os.Signal{syscall.SIGTERM}, 143},
		{"INT, then INT for one that ignores it", `trap "" INT; (trap "" INT; sleep 300) & echo $! > pid; wait; sleep 300`, []os.Signal{os.Interrupt, os.Interrupt}, 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			signals := make(chan os.Signal)
			done := make(chan int, 1)
			go func() {
				status, err := execute(quiet, signals, nil, []string{"sh", "-c", strings.ReplaceAll(c.script, "> pid", "> "+file)})
				if err != nil {
					t.Error(err)
				}
				done <- status
			}()
			child := readPid(t, file)
			for _, s := range c.signals {
				signals <- s
			}
			select {
			case status := <-done:
				if status != c.status {
					t.Errorf("status: got %d, want %d", status, c.status)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the command did not end")
			}
			waitFor(t, "the command's child has ended", func() bool { return ended(child) })
		})
	}
}

func readPid(t *testing.T, file string) int {
	t.Helper()
	var pid int
	waitFor(t, "the command has started a child", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	return pid
}

// ended is true for a zombie as well: that is its parent's business.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 2 m: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
