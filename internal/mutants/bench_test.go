package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A module with one function, one query that it embeds, and tests of both.
var small = map[string]string{
	"go.mod":      "module small\n\ngo 1.26\n",
	"p/p.go":      "package p\n\nimport _ \"embed\"\n\n//go:embed q.sql\nvar query string\n\nfunc one() int { return 1 }\n",
	"p/q.sql":     "SELECT 1\n",
	"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Error(\"not one\")\n\t}\n}\n\nfunc TestQuery(t *testing.T) {\n\tt.Run(\"text\", func(t *testing.T) {\n\t\tif query != \"SELECT 1\\n\" {\n\t\t\tt.Error(query)\n\t\t}\n\t})\n}\n\nfunc TestBroken(t *testing.T) { t.Error(\"always\") }\n",
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{root: t.TempDir(), dir: t.TempDir(), timeout: 3 * time.Second, sound: map[string]error{}}
	for name, text := range small {
		path := filepath.Join(b.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// An edit is killed by a test that fails or a process that ends, and by nothing else. The tree stays as it is.
func TestBench(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		tests, file, old, new string
		killed                bool
		by                    string
	}{
		{"TestOne", "p/p.go", "return 1", "return 2", true, "TestOne"},
		{"TestOne|TestQuery", "p/q.sql", "1", "2", true, "TestQuery"},
		{"TestQuery/text", "p/q.sql", "1", "2", true, "TestQuery"},
		{"TestOne", "p/p.go", "return 1", "panic(1)", true, "TestOne"},
		{"TestOne", "p/p.go", "{ return 1 }", "{ c := make(chan int); go func() { panic(1) }(); return <-c }", true, "the end of the process"},
		{"TestOne", "p/p.go", "return 1", "return 2 - 1", false, "the tests pass"},
		{"TestQuery", "p/p.go", "return 1", "return 2", false, "the tests pass"},
		{"TestOne", "p/p.go", "return 1", "return x", false, "doesn't compile"},
		{"TestOne", "p/p.go", "return 1", "for {}", false, "too long"},
		{"TestOne", "p/p.go", "return 2", "return 3", false, "0 times"},
		{"TestOne", "p/p.go", "n", "m", false, "times, want once"},
		{"TestNone", "p/p.go", "return 1", "return 2", false, "no test ran"},
		{"TestQuery/none", "p/q.sql", "1", "2", false, "no test ran"},
		{"TestBroken", "p/p.go", "return 1", "return 2", false, "without the edit"},
	} {
		v := b.try(t.Context(), mutant{"edit", "P1", "p", c.tests, c.file, c.old, c.new})
		if v.killed != c.killed || !strings.Contains(v.by, c.by) {
			t.Errorf("%s → %s: killed %v by %s, want %v by %s", c.old, c.new, v.killed, v.by, c.killed, c.by)
		}
	}
	for name, want := range small {
		if got, err := os.ReadFile(filepath.Join(b.root, name)); err != nil || string(got) != want {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}
