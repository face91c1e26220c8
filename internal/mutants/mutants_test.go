package main

import (
	"flag"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// The list can't rot: each edit finds its text exactly once, changes it, and names tests that are there.
func TestEditsFitTheTree(t *testing.T) {
	t.Parallel()
	all := mutants()
	if len(all) < 30 {
		t.Errorf("%d edits", len(all))
	}
	names, promises := map[string]bool{}, map[string]bool{}
	for _, m := range all {
		if names[m.name] {
			t.Errorf("%s: named twice", m.name)
		}
		names[m.name], promises[m.promise] = true, true
		text, err := m.edited(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.old == m.new || strings.HasSuffix(m.file, "_test.go") {
			t.Errorf("%s: changes nothing", m.name)
		}
		if filepath.Ext(m.file) == ".go" {
			if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
				t.Errorf("%s: not Go any more: %v", m.name, err)
			}
		}
		there := testsOf(t, m.pkg)
		for _, f := range m.functions() {
			if !slices.Contains(there, f) {
				t.Errorf("%s: %s has no %s", m.name, m.pkg, f)
			}
		}
	}
	for _, p := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10"} {
		if !promises[p] {
			t.Errorf("no edit breaks %s", p)
		}
		delete(promises, p)
	}
	if len(promises) > 0 {
		t.Errorf("promises that nobody made: %v", promises)
	}
}

var update = flag.Bool("update", false, "write the table in docs/guarantees.md anew")

// The page has the list as it is.
func TestPageHasTheTable(t *testing.T) {
	t.Parallel()
	const page, begin, end = root + "/docs/guarantees.md", "<!-- the list of internal/mutants -->\n\n", "\n<!-- until here -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	was, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table between %q and %q", page, begin, end)
	}
	want := table(mutants())
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if was != want {
		t.Error("docs/guarantees.md has another list: go test ./internal/mutants -run PageHasTheTable -update")
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testsOf lists a package's test functions.
func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	return names
}
