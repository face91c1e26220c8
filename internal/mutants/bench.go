package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// bench is where edits are tried.
type bench struct {
	root    string // of the module, which is only read
	dir     string // for everything that is written
	timeout time.Duration
	sound   map[string]error // by package and pattern: what the tests say of the tree as it is
}

// verdict is what became of an edit.
type verdict struct {
	killed bool
	by     string // the tests that failed, or why none did
}

// try builds the package's tests with the edit and runs those that must fail.
func (b *bench) try(ctx context.Context, m mutant) verdict {
	text, err := m.edited(b.root)
	if err != nil {
		return verdict{false, err.Error()}
	}
	if err := b.pass(ctx, m); err != nil {
		return verdict{false, "without the edit: " + err.Error()}
	}
	overlay, err := b.overlay(m.file, text)
	if err != nil {
		return verdict{false, err.Error()}
	}
	binary, err := b.build(ctx, m.pkg, overlay)
	if err != nil {
		return verdict{false, err.Error()}
	}
	out, err := b.run(ctx, m, binary, overlay)
	return judge(m.functions(), out, err)
}

// pass makes sure that the tests pass on the tree as it is, once for each choice of them.
func (b *bench) pass(ctx context.Context, m mutant) error {
	key := m.pkg + " " + m.tests
	err, known := b.sound[key]
	if known {
		return err
	}
	binary, err := b.build(ctx, m.pkg, "")
	if err == nil {
		var out string
		if out, err = b.run(ctx, m, binary, ""); err != nil {
			err = fmt.Errorf("%w\n%s", err, tail(out))
		}
	}
	b.sound[key] = err
	return err
}

// overlay writes what tells the go command to read the edited text in the place of a file.
func (b *bench) overlay(file, text string) (string, error) {
	edited := filepath.Join(b.dir, "edited"+filepath.Ext(file))
	if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(b.root, file): edited}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// build compiles a package's tests. Those of the tree as it is are kept.
func (b *bench) build(ctx context.Context, pkg, overlay string) (string, error) {
	name := "edited.test"
	if overlay == "" {
		name = strings.ReplaceAll(pkg, "/", "-") + ".test"
	}
	binary := filepath.Join(b.dir, name)
	if _, err := os.Stat(binary); err == nil && overlay == "" {
		return binary, nil
	}
	cmd := b.command(ctx, overlay, "go", "test", "-c", "-ldflags=-w", "-o", binary, "./"+pkg)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it doesn't compile: %w\n%s", err, tail(string(out)))
	}
	return binary, nil
}

// run runs the tests in the folder of their package, as go test does.
func (b *bench) run(ctx context.Context, m mutant, binary, overlay string) (out string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout+10*time.Second, errHangs)
	defer cancel()
	cmd := b.command(ctx, overlay, binary, "-test.run", m.pattern(), "-test.timeout", b.timeout.String(), "-test.failfast", "-test.v")
	cmd.Dir = filepath.Join(b.root, m.pkg)
	text, err := cmd.CombinedOutput()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil && !ran(string(text), strings.Count(m.tests, "/")) {
		err = errors.New("no test ran")
	}
	return string(text), err
}

// ran says whether a test of that depth passed: a name that no subtest has would select its parent alone.
func ran(out string, depth int) bool {
	return slices.ContainsFunc(passed.FindAllStringSubmatch(out, -1), func(found []string) bool {
		return strings.Count(found[1], "/") >= depth
	})
}

var errHangs = errors.New("the tests don't end")

// command hands the edit down: tests that build relay themselves build it with the edit.
func (b *bench) command(ctx context.Context, overlay, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	return cmd
}

var (
	passed   = regexp.MustCompile(`(?m)^ *--- PASS: (\S+)`)
	failed   = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	refused  = regexp.MustCompile(`SQLSTATE 42(601|703|702|704|883|804|846|P\d\d)`)
	panicked = regexp.MustCompile(`(?m)^(panic|fatal error): .*`)
)

// judge reads the output of the tests with the edit. A time-out isn't a kill: a hang tells nobody what is wrong. Nor is
// SQL that Postgres can't read, or whose names and types it doesn't know.
func judge(tests []string, out string, err error) verdict {
	if err == nil {
		return verdict{false, "the tests pass"}
	}
	var by []string
	for _, f := range failed.FindAllStringSubmatch(out, -1) {
		if slices.Contains(tests, f[1]) && !slices.Contains(by, f[1]) {
			by = append(by, f[1])
		}
	}
	last := panicked.FindString(out)
	switch {
	case strings.Contains(last, "test timed out"):
		return verdict{false, "the tests take too long"}
	case refused.MatchString(out):
		return verdict{false, "it doesn't compile, says Postgres: " + refused.FindString(out)}
	case len(by) > 0:
		return verdict{true, strings.Join(by, ", ")}
	case last != "":
		return verdict{true, fmt.Sprintf("%s, by the end of the process: %.60s", strings.Join(tests, ", "), last)}
	}
	return verdict{false, fmt.Sprintf("no test failed: %v\n%s", err, tail(out))}
}

// tail is the end of an output.
func tail(out string) string {
	const most = 2000
	return strings.TrimSpace(out[max(0, len(out)-most):])
}
