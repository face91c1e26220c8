package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
)

// oldPrograms are the page's workers, each language as its own processes.
type oldPrograms struct {
	dir      string
	env      []string
	programs []program
	running  []*oldProgram
	outs     []string // files with what they printed
}

// program makes a command of a worker from its text.
type program struct {
	lang, text string
	make       func(file string) *exec.Cmd
}

type oldProgram struct {
	cmd   *exec.Cmd
	ended chan error
}

// The page's workers are those of after the change; before it they lack one line.
const (
	guarded   = true
	unguarded = false
	guardLine = "relay_owns("
)

// programs are those that this machine can run: Go always, Python where it and psycopg can be had.
func (w *walk) programs(page []step) (all []program) {
	w.t.Helper()
	for _, s := range page {
		switch s.lang + " " + s.mark {
		case "go file=old_worker.go":
			all = append(all, program{"go", s.text, func(file string) *exec.Cmd { return buildGo(w.t, file) }})
		case "python file=old_worker.py":
			if python := venv(w.t); python != "" {
				all = append(all, program{"py", s.text, func(file string) *exec.Cmd { return exec.Command(python, file) }})
			}
		}
	}
	for _, p := range all {
		if strings.Count(p.text, guardLine) != 1 {
			w.t.Fatalf("the worker in %s has no guard, or more than one", p.lang)
		}
	}
	return all
}

func buildGo(t *testing.T, file string) *exec.Cmd {
	t.Helper()
	out := strings.TrimSuffix(file, ".go")
	if text, err := exec.Command("go", "build", "-o", out, file).CombinedOutput(); err != nil {
		t.Fatalf("build the page's worker: %v\n%s", err, text)
	}
	return exec.Command(out)
}

// venv returns a Python that has psycopg, made once for each version of Python and kept in the cache; "" where it can't be
// had, and the log says why.
func venv(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return strings.Join(strings.Fields(string(out)), "-"), err
	}
	version, err := run("python3", "--version")
	cache, err2 := host.CacheDir(nil)
	if err = errors.Join(err, err2); err == nil {
		cache, err = host.Fill(ctx, cache, version+"-psycopg-3", func(dir string) error {
			if _, err := run("python3", "-m", "venv", dir); err != nil {
				return err
			}
			_, err := run(filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "psycopg[binary]>=3,<4")
			return err
		})
	}
	if err != nil {
		t.Logf("the page's worker in Python isn't run, only the one in Go: %v", err)
		return ""
	}
	return filepath.Join(cache, "bin", "python")
}

// deploy replaces the workers one by one, two of each language.
func (o *oldPrograms) deploy(t *testing.T, guard bool) {
	t.Helper()
	old := o.running
	o.running = nil
	for _, p := range o.programs {
		text := p.text
		if !guard {
			text = strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, guardLine) }), "\n")
		}
		file := filepath.Join(o.dir, fmt.Sprintf("old_worker_%t.%s", guard, p.lang))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		made := p.make(file)
		for range 2 {
			o.running = append(o.running, o.start(t, exec.Command(made.Path, made.Args[1:]...)))
			if len(old) > 0 {
				old[0].end(t)
				old = old[1:]
			}
		}
	}
}

func (o *oldPrograms) start(t *testing.T, cmd *exec.Cmd) *oldProgram {
	t.Helper()
	path := filepath.Join(o.dir, fmt.Sprintf("old-%d.out", len(o.outs)))
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	o.outs = append(o.outs, path)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.env, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &oldProgram{cmd: cmd, ended: make(chan error, 1)}
	go func() { defer out.Close(); p.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

// end lets it end what it does.
func (p *oldProgram) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("an old worker ended: %v", err)
		}
	case <-time.After(generous):
		t.Errorf("an old worker doesn't end")
	}
}

func (o *oldPrograms) end(t *testing.T) {
	t.Helper()
	for _, p := range o.running {
		p.end(t)
	}
	o.running = nil
}

// sent counts how often old workers did each job, and fails on anything else that they printed.
func (o *oldPrograms) sent(t *testing.T) map[int64]int {
	t.Helper()
	counts := map[int64]int{}
	for _, path := range o.outs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			id, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(line, "sent ")), 10, 64)
			if err != nil {
				t.Errorf("an old worker printed %q", line)
				continue
			}
			counts[id]++
		}
	}
	return counts
}
