package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(t *testing.T, script string) Command {
	t.Helper()
	dir := t.TempDir()
	return Command{Name: "the server", Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(dir, "log")}
}

func never(context.Context) error { return errors.New("connection refused") }

func TestAwaitTellsWhyAServerDidNotComeUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, want string }{
		{"ended with an error", "echo no such option >&2; exit 3", "exit status 3\nno such option"},
		{"ended without one", "echo done", "exit status 0\ndone"},
		{"never ready", "echo still loading; sleep 60", "too late; last: connection refused\nstill loading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := Start(shell(t, c.script))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("too late"))
			defer cancel()
			if err := p.Await(ctx, never); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("await: got %v, want %q", err, c.want)
			}
		})
	}
}

func TestStopKillsWhatIgnoresTheSignal(t *testing.T) {
	t.Parallel()
	p, err := Start(shell(t, `trap "" TERM; echo deaf; while :; do sleep 1; done`))
	if err != nil {
		t.Fatal(err)
	}
	ready := func(context.Context) error {
		if Tail(p.command.Log) != "deaf" {
			return errors.New("has said nothing")
		}
		return nil
	}
	if err := p.Await(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(syscall.SIGTERM, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stop: got %v, want an error that it had to be killed", err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("the process still runs after Stop")
	}
}

func TestServerComesBackAfterAStopAndACrash(t *testing.T) {
	t.Parallel()
	s := &Server{Command: shell(t, "sleep 300"), Ready: func(context.Context) error { return nil }}
	ctx := t.Context()
	if err := errors.Join(s.Up(ctx), s.Up(ctx), s.Down(), s.Down(), s.Up(ctx), s.Kill(), s.Kill(), s.Up(ctx), s.Kill()); err != nil {
		t.Error(err)
	}
}

func TestRunReturnsTheOutputOfAFailure(t *testing.T) {
	t.Parallel()
	if err := Run(t.Context(), shell(t, "true")); err != nil {
		t.Error(err)
	}
	if err := Run(t.Context(), shell(t, "echo broken; exit 1")); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("run: got %v, want the command's output", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if err := Run(ctx, shell(t, "sleep 300")); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("run with a cancelled context: got %v, want its cause", err)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	t.Parallel()
	c := shell(t, "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done")
	if err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(Tail(c.Log), "\n")
	if len(lines) != tailLines || lines[0] != fmt.Sprint("line ", 200-tailLines) || lines[tailLines-1] != "line 199" {
		t.Errorf("tail: got %d lines from %q, want the last %d", len(lines), lines[0], tailLines)
	}
}
