package main

import (
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/config"
)

// quick is how soon a usage or configuration problem must be told. It's a second where nothing else runs.
const quick = 5 * time.Second

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ line, says string }{
		{"", "wants a command"},
		{"frobnicate", `unknown command "frobnicate"`},
		{"kinds", "wants a command"},
		{"kinds list a", `"a"`},
		{"kinds set a", "arg"},
		{"kinds set a 101", `SHARE "101": must be a whole number from 0 to 100`},
		{"kinds set a x", `SHARE "x"`},
		{"kinds set a -1", `SHARE "-1"`},
		{"kinds set a 2.5", `SHARE "2.5"`},
		{"kinds set order.* 25", `KIND "order.*": must be one kind`},
		{"kinds set " + strings.Repeat("k", 256) + " 25", "1 to 255 bytes"},
		{"run --no-such-flag", "unknown flag: --no-such-flag"},
		{"run twice", `"twice"`},
		{"migrate", "wants a command"},
		{"migrate sideways", `"sideways"`},
		{"migrate up --fillfactor 5", "--fillfactor 5"},
		{"migrate up --fillfactor full", "--fillfactor"},
		{"enqueue", "--kind"},
		{"enqueue --kind a", "--payload"},
		{"enqueue --kind a --payload 1 --body-file f", "one of them"},
		{"enqueue --kind a --payload 1 --header x", "name=value"},
		{"enqueue --kind a --payload 1 --header x=1 --header x=2", "once"},
		{"enqueue --kind a --payload 1 --priority 40000", "--priority"},
		{"enqueue --kind a --payload 1 --max-attempts 0", "--max-attempts"},
		{"enqueue --kind a --payload 1 --key=", "--key"},
		{"enqueue --kind a --payload 1 --run-at tomorrow", "--run-at"},
		{"enqueue - --kind a", "--kind"},
		{"enqueue x", `"x"`},
		{"dead", "wants a command"},
		{"dead show", "arg"},
		{"dead show twelve", "twelve"},
		{"dead requeue", "--all"},
		{"dead requeue --all --kind a", "not both"},
		{"dead requeue --limit 3", "--all"},
		{"dead discard --kind=", "--kind is empty"},
		{"dead discard --error=", "--error is empty"},
		{"dead discard --id x", "--id"},
		{"dead list --limit 0", "--limit"},
		{"dead list --since yesterday", "--since"},
		{"demo --jobs 0", "--jobs"},
		{"demo --jobs many", "--jobs"},
		{"demo --rate -1", "--rate"},
	} {
		t.Run(test.line, func(t *testing.T) {
			t.Parallel()
			o := relayIn(config.Environ{}, "", strings.Fields(test.line)...)
			if o.code != exitUsage || o.out != "" || o.took > quick {
				t.Errorf("exit %d after %v, standard output %q; want 2 at once and nothing", o.code, o.took, o.out)
			}
			has(t, "standard error", o.err, test.says)
			if strings.Count(o.err, "\n") != 1 {
				t.Errorf("standard error isn't one line: %q", o.err)
			}
		})
	}
}

// good are settings that `run` takes; its database isn't reached by these tests.
func good() config.Environ {
	return config.Environ{
		"RELAY_DATABASE_URL": "postgres://u:s3cr3tvalue@127.0.0.1:1/x",
		"RELAY_ROUTES":       `[{kind: a, to: ["discard:"]}]`,
		"RELAY_ADMIN_ADDR":   "off",
	}
}

func TestB30BadSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  config.Environ
		says []string // one for each line, in any order
	}{
		"lease":             {config.Environ{"RELAY_LEASE": "-1s"}, []string{"RELAY_LEASE"}},
		"two at once":       {config.Environ{"RELAY_LEASE": "abc", "RELAY_WORKERS": "0"}, []string{"RELAY_LEASE", "RELAY_WORKERS"}},
		"no database":       {config.Environ{"RELAY_DATABASE_URL": ""}, []string{"RELAY_DATABASE_URL"}},
		"no routes":         {config.Environ{"RELAY_ROUTES": ""}, []string{"RELAY_ROUTES"}},
		"unknown sink":      {config.Environ{"RELAY_ROUTES": `[{kind: a, to: ["nosink:x"]}]`}, []string{"RELAY_ROUTES.*nosink"}},
		"setting and route": {config.Environ{"RELAY_LEASE": "x", "RELAY_ROUTES": `[{kind: a, to: ["nosink:x"]}]`}, []string{"RELAY_LEASE", "nosink"}},
		"address":           {config.Environ{"RELAY_ROUTES": `[{kind: a, to: ["discard:x"]}]`}, []string{"RELAY_ROUTES.*discard"}},
		"order":             {config.Environ{"RELAY_ROUTES": `[{kind: a, to: ["discard:"], order: keys}]`}, []string{"RELAY_ROUTES.*order"}},
		"sink's setting":    {config.Environ{"RELAY_ROUTES": `[{kind: a, to: ["kafka:t"]}]`, "RELAY_KAFKA_BROKERS": "b", "RELAY_KAFKA_ACKS": "0"}, []string{"RELAY_KAFKA_ACKS"}},
		"named sink's":      {config.Environ{"RELAY_SINKS": "eu:kafka", "RELAY_EU_BROKERS": "b", "RELAY_EU_ACKS": "0"}, []string{"RELAY_EU_ACKS"}},
		"sink type":         {config.Environ{"RELAY_SINKS": "eu:pigeon"}, []string{"RELAY_SINKS.*pigeon.*kafka"}},
		"secret":            {config.Environ{"RELAY_DATABASE_URL": "postgres://u:s3cr3tvalue@127.0.0.1:bad/x"}, []string{"RELAY_DATABASE_URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := good()
			maps.Copy(env, test.set)
			o := relayIn(env, "", "run")
			if o.code != exitUsage || o.took > quick {
				t.Errorf("exit %d after %v, want 2 at once", o.code, o.took)
			}
			lines := strings.Split(strings.TrimSpace(o.err), "\n")
			if len(lines) != len(test.says) {
				t.Errorf("%d lines, want %d: %s", len(lines), len(test.says), o.err)
			}
			for _, says := range test.says {
				if !regexp.MustCompile(says).MatchString(o.err) {
					t.Errorf("standard error doesn't match %q: %s", says, o.err)
				}
			}
			hasNot(t, "the output", o.out+o.err, "s3cr3tvalue", "goroutine", "panic")
		})
	}
}

// A check reports the settings like anything else that it looks at.
func TestB30CheckReportsBadSettings(t *testing.T) {
	t.Parallel()
	env := good()
	env["RELAY_LEASE"], env["RELAY_LAESE"] = "x", "1m"
	o := must(t, exitFailed, env, "check")
	has(t, "standard output", o.out, "fail  settings", "RELAY_LEASE", "warn  settings", "RELAY_LAESE")
	if o.err != "" {
		t.Errorf("standard error: %q", o.err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	has(t, "help", must(t, exitDone, nil, "--help").out, "run", "demo", "migrate", "enqueue", "status", "check", "dead", "kinds", "health", "completion")
	has(t, "help of a command", must(t, exitDone, nil, "dead", "requeue", "--help").out, "--dry-run", "--kind")
	has(t, "completion", must(t, exitDone, nil, "completion", "bash").out, "complete")
	has(t, "version", must(t, exitDone, nil, "version").out, "relay ")
	has(t, "version as JSON", must(t, exitDone, nil, "version", "--json").out, `"version":`, `"go":`)
}

func TestHealthWithoutRelay(t *testing.T) {
	t.Parallel()
	has(t, "standard error", must(t, exitFailed, config.Environ{"RELAY_ADMIN_ADDR": "127.0.0.1:1"}, "health").err, "127.0.0.1:1")
	has(t, "standard error", must(t, exitFailed, config.Environ{"RELAY_ADMIN_ADDR": "off"}, "health").err, "off")
	must(t, exitUsage, config.Environ{"RELAY_ADMIN_ADDR": "here"}, "health")
}
