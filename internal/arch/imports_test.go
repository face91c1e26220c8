// Package arch holds the rules of the house that a compiler doesn't know.
package arch

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/jobrelay/relay"

// mayImport says which of our packages each may import, by prefix; tests are free. Nothing imports cmd. A package
// that isn't listed may import nothing of ours.
var mayImport = map[string][]string{
	"cmd/relay":         {""}, // wiring: knows everything
	"config":            {},
	"outbox":            {},
	"claim":             {"outbox", "internal/sqlname"},
	"sinks":             {},
	"sinks/kafka":       {"sinks"},
	"sinks/rabbitmq":    {"sinks"},
	"sinks/sqs":         {"sinks"},
	"sinks/stdout":      {"sinks"},
	"sinks/discard":     {"sinks"},
	"sinks/sinktest":    {"sinks"},
	"relay":             {"claim", "outbox", "sinks", "internal/label"},
	"migrations":        {"internal/sqlname"},
	"internal/admin":    {"internal/ops", "relay", "claim"},
	"internal/ops":      {"claim", "internal/label", "internal/sqlname"},
	"internal/sqlname":  {},
	"internal/label":    {},
	"internal/bar":      {},
	"internal/demo":     {""},
	"internal/version":  {},
	"internal/services": {"internal/services"},
	"internal/testdb":   {"internal/services", "migrations"},
	"internal/e2e":      {""},
	"internal/chaos":    {""},
	"internal/history":  {},
	"internal/stage":    {},
	"internal/testlog":  {},
	"internal/bench":    {""},
	"internal/arch":     {},
	"internal/mutants":  {},
}

// forbidden keeps technologies in their rooms: what a package under pkg must not import, with the reason.
var forbidden = []struct{ pkg, imports, but, reason string }{
	{"outbox", "github.com/", "github.com/jackc/pgx/v5", "what applications import needs the standard library and pgx only"},
	{"relay", "github.com/jackc/", "", "the engine knows no SQL"},
	{"relay", "github.com/segmentio/", "", "the engine knows no broker"},
	{"relay", "github.com/rabbitmq/", "", "the engine knows no broker"},
	{"relay", "github.com/aws/", "", "the engine knows no broker"},
	{"sinks", "github.com/jackc/", "", "a sink knows no database"},
	{"config", "github.com/segmentio/", "", "the configuration knows no broker"},
	{"config", "github.com/rabbitmq/", "", "the configuration knows no broker"},
	{"config", "github.com/aws/", "", "the configuration knows no broker"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// rule finds the entry for a package: its own, or that of the nearest folder above.
func rule(name string) (allowed []string, ok bool) {
	for {
		if allowed, ok := mayImport[name]; ok {
			return allowed, true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil, false
		}
		name = name[:i]
	}
}

func under(name, prefix string) bool {
	return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, ok := rule(name)
		if !ok {
			t.Errorf("%s has no rule: say in mayImport what it may import", name)
			continue
		}
		for _, imp := range p.Imports {
			ours, isOurs := strings.CutPrefix(imp, module+"/")
			if !isOurs || under(ours, name) {
				continue
			}
			if strings.HasPrefix(ours, "cmd/") || !slices.ContainsFunc(allowed, func(a string) bool { return under(ours, a) }) {
				t.Errorf("%s imports %s; it may import %v", name, ours, allowed)
			}
		}
	}
}

func TestTechnologiesStayInTheirRooms(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, f := range forbidden {
			if !under(name, f.pkg) {
				continue
			}
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, f.imports) && !under(imp, module) && (f.but == "" || !under(imp, f.but)) {
					t.Errorf("%s imports %s: %s", name, imp, f.reason)
				}
			}
		}
	}
}
