package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	env := on(db, nil)
	has(t, "status", must(t, exitDone, env, "migrate", "status").out, "pending")
	has(t, "sql", strings.ToLower(must(t, exitDone, env, "migrate", "sql").out), "create table")
	if testdb.One[bool](t, db, "SELECT to_regclass('jobs') IS NOT NULL") {
		t.Error("sql ran something")
	}
	has(t, "up", must(t, exitDone, env, "migrate", "up", "--fillfactor", "50").out, "up to date")
	must(t, exitDone, env, "migrate", "up")
	hasNot(t, "status", must(t, exitDone, env, "migrate", "status").out, "pending")
	for _, line := range strings.Split(strings.TrimSpace(must(t, exitDone, env, "migrate", "status", "--json").out), "\n") {
		var step struct {
			Version   int
			AppliedAt *time.Time `json:"applied_at"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil || step.Version == 0 || step.AppliedAt == nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	must(t, exitDone, env, "migrate", "retire")
	must(t, exitDone, env, "migrate", "down")
	has(t, "status", must(t, exitDone, env, "migrate", "status").out, "pending")
	must(t, exitDone, env, "migrate", "up")
	insert(t, db, "a", 1)
	for i := 0; ; i++ { // steps that keep every job are taken back, the one that would lose it isn't
		o := relayIn(env, "", "migrate", "down")
		if o.code == exitFailed {
			has(t, "the refusal", o.err, "--drop-data")
			break
		}
		if i > 20 {
			t.Fatal("down never refused to lose a job")
		}
	}
}

func TestEnqueueByFlags(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("\x00\xffbody"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(must(t, exitDone, env, "enqueue", "--kind", "e", "--key", "k", "--header", "a=b", "--header", "c=d=e", "--header", "n=1",
		"--priority", "-3", "--max-attempts", "9", "--payload", `{"id": 1546130668394913822}`, "--run-at", "2031-02-03T04:05:06Z").out)
	got := testdb.One[string](t, db, `SELECT concat_ws('|', id, kind, key, headers, priority, max_attempts, payload, run_at AT TIME ZONE 'UTC') FROM jobs`)
	want := id + `|e|k|{"a": "b", "c": "d=e", "n": "1"}|-3|9|{"id": 1546130668394913822}|2031-02-03 04:05:06`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	has(t, "JSON", must(t, exitDone, env, "enqueue", "--kind", "e", "--body-file", body, "--json").out, `{"id":`)
	if got := testdb.One[[]byte](t, db, "SELECT body FROM jobs WHERE body IS NOT NULL"); string(got) != "\x00\xffbody" {
		t.Errorf("%q", got)
	}
	for payload, says := range map[string]string{`{"a":"x\u0000y"}`: "$.a", "{": "JSON", `"\ud800"`: "surrogate"} {
		has(t, payload, must(t, exitUsage, env, "enqueue", "--kind", "e", "--payload", payload).err, "payload", says)
	}
	has(t, "a header of the relay", must(t, exitUsage, env, "enqueue", "--kind", "e", "--payload", "1", "--header", "relay-id=x").err, "relay-")
	has(t, "no file", must(t, exitFailed, env, "enqueue", "--kind", "e", "--body-file", body+".absent").err, "absent")
	if n := testdb.One[int](t, db, "SELECT count(*) FROM jobs"); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	var lines strings.Builder
	for i := range chunkJobs + 200 { // more than one statement
		fmt.Fprintf(&lines, `{"kind":"e","key":"k%d","payload":{"n":%d},"max_attempts":%d}`+"\n", i, i, i%2*3)
	}
	o := relayIn(env, lines.String(), "enqueue", "-")
	if o.code != exitDone || strings.Count(o.out, "\n") != chunkJobs+200 {
		t.Fatalf("exit %d, %d ids: %s", o.code, strings.Count(o.out, "\n"), o.err)
	}
	first, _, _ := strings.Cut(o.out, "\n")
	if got := testdb.One[string](t, db, "SELECT key FROM jobs WHERE id = $1::text::bigint", first); got != "k0" {
		t.Errorf("the first id is that of %s", got)
	}
	if n := testdb.One[int](t, db, "SELECT count(DISTINCT xmin::text) FROM jobs"); n != 1 {
		t.Errorf("%d transactions", n)
	}
	for bad, says := range map[string]string{"{broken": "line 1201", `{"kind":"","payload":1}`: "line 1201: kind", `{"kind":"e","payload":"\u0000"}`: "line 1201: payload"} {
		o := relayIn(env, lines.String()+bad+"\n"+lines.String(), "enqueue", "-")
		if o.code != exitFailed || o.out != "" {
			t.Errorf("%s: exit %d, %q", bad, o.code, o.out)
		}
		has(t, bad, o.err, says)
	}
	if n := testdb.One[int](t, db, "SELECT count(*) FROM jobs"); n != chunkJobs+200 {
		t.Errorf("%d jobs after refusals", n)
	}
	if o := relayIn(env, "", "enqueue", "-"); o.code != exitDone || o.out != "" {
		t.Errorf("no lines: exit %d, %q", o.code, o.out)
	}
}

func TestStatusCommand(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	has(t, "an empty table", must(t, exitDone, env, "status").out, "no unfinished jobs")
	insert(t, db, "a", 7)
	db.Exec(t, "INSERT INTO jobs (kind, payload, run_at) SELECT 'a', '1', now() + interval '1 day' FROM generate_series(1, 3)")
	db.Exec(t, "INSERT INTO jobs (kind, payload, status, attempts, last_error) SELECT 'b', '1', 'dead', 5, 'x' FROM generate_series(1, 4)")
	db.Exec(t, "INSERT INTO jobs (kind, payload, status, attempts, leased_until) SELECT 'b', '1', 'running', 1, now() + interval '1 h' FROM generate_series(1, 2)")
	env["RELAY_ROUTES"] = `[{kind: a, to: ["discard:"]}]`
	var got struct {
		Source string
		Kinds  []struct {
			Kind                      string
			Routed                    bool
			Ready, Due, Running, Dead int
		}
	}
	if err := json.Unmarshal([]byte(must(t, exitDone, env, "status", "--json").out), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "{shop [{a true 10 7 0 0} {b false 0 0 2 4}]}" {
		t.Errorf("%+v", got)
	}
	has(t, "the table", must(t, exitDone, env, "status").out, "source shop", "KIND", "a ", "b ")
	has(t, "no schema", must(t, exitFailed, on(testdb.Empty(t), nil), "status").err, "relay migrate up")
	must(t, exitFailed, config.Environ{"RELAY_DATABASE_URL": "postgres://u@127.0.0.1:1/x"}, "status")
}

func TestDeadCommands(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, attempts, last_error, headers)
SELECT CASE WHEN g > 8 THEN 'b' ELSE 'a' END, 'k' || g % 2, '{"big": 1546130668394913822}', 'dead', 5, 'broker said no ' || g, '{"h": 1}' FROM generate_series(1, 10) g`)
	ids := testdb.Column[string](t, db, "SELECT id::text FROM jobs ORDER BY id")
	lines := func(args ...string) int {
		t.Helper()
		return strings.Count(must(t, exitDone, env, append([]string{"dead", "list"}, args...)...).out, "\n")
	}
	for args, want := range map[string]int{"": 10, "--kind a": 8, "--key k0": 5, "--error no|4": 0, "--since 1h": 10, "--until 1h": 0, "--limit 3": 3, "--json": 10} {
		if got := lines(strings.Fields(args)...); got != want {
			t.Errorf("dead list %s: %d lines, want %d", args, got, want)
		}
	}
	if got := lines("--id", ids[0], "--id", ids[3]); got != 2 {
		t.Errorf("by id: %d", got)
	}
	has(t, "list", must(t, exitDone, env, "dead", "list", "--limit", "1").out, ids[0], "broker said no 1", `"k1"`)
	has(t, "show", must(t, exitDone, env, "dead", "show", ids[0]).out, "broker said no 1", "1546130668394913822", `{"h": 1}`)
	var job map[string]any
	if err := json.Unmarshal([]byte(must(t, exitDone, env, "dead", "show", ids[0], "--json").out), &job); err != nil || job["last_error"] != "broker said no 1" || job["payload"] == nil {
		t.Errorf("%v, %v", job, err)
	}
	has(t, "no such job", must(t, exitFailed, env, "dead", "show", "999999999").err, "999999999")

	changed := func(code int, want string, args ...string) {
		t.Helper()
		if got := must(t, code, env, append([]string{"dead"}, args...)...).out; strings.TrimSpace(got) != want {
			t.Errorf("dead %v: %q, want %q", args, got, want)
		}
	}
	changed(exitDone, "dry run: changed 8, skipped 0, not found 0", "requeue", "--kind", "a", "--dry-run")
	changed(exitDone, "changed 8, skipped 0, not found 0", "requeue", "--kind", "a")
	if n := testdb.One[int](t, db, "SELECT count(*) FROM jobs WHERE kind = 'a' AND status = 'ready' AND attempts = 0 AND run_at <= now()"); n != 8 {
		t.Errorf("%d jobs have a new round", n)
	}
	changed(exitFailed, "changed 0, skipped 1, not found 1", "requeue", "--id", ids[0], "--id", "999999999")
	changed(exitDone, "changed 1, skipped 1, not found 0", "discard", "--id", ids[9], "--id", ids[0])
	changed(exitDone, `{"changed":1,"skipped":0,"not_found":0,"dry_run":false}`, "discard", "--all", "--json")
	changed(exitDone, "changed 0, skipped 0, not found 0", "requeue", "--all")
	if n := testdb.One[int](t, db, "SELECT count(*) FROM jobs"); n != 8 {
		t.Errorf("%d jobs are left, want 8", n)
	}
}

func TestCheckCommand(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, config.Environ{"RELAY_ROUTES": `[{kind: a, to: ["discard:"]}, {kind: b, to: ["kafka:{kind}"]}]`, "RELAY_KAFKA_BROKERS": services.Kafka(t)})
	o := must(t, exitDone, env, "check")
	has(t, "good", o.out, "ok    settings", "ok    database", "ok    schema", "ok    privileges", "ok    claim plan", "ok    listen", "ok    discard:", "ok    kafka:{kind}")
	hasNot(t, "good", o.out, "fail", "warn")
	has(t, "polling only", must(t, exitDone, with(env, "RELAY_LISTEN_URL", "off"), "check").out, "polling only")
	has(t, "no LISTEN", must(t, exitDone, with(env, "RELAY_LISTEN_URL", "postgres://u@127.0.0.1:1/x"), "check").out, "warn  listen")
	has(t, "no schema", must(t, exitFailed, with(env, "RELAY_TABLE", testdb.Empty(t).Table), "check").out, "fail  schema", "migrate up")
	has(t, "no topic", must(t, exitFailed, with(env, "RELAY_ROUTES", `[{kind: a, to: ["kafka:no.such.topic"]}]`), "check").out, "fail  kafka:no.such.topic")
	has(t, "no broker", must(t, exitFailed, with(env, "RELAY_KAFKA_BROKERS", "127.0.0.1:1"), "check").out, "fail  kafka:", "127.0.0.1:1")
	out := must(t, exitFailed, with(env, "RELAY_DATABASE_URL", "postgres://u@127.0.0.1:1/x"), "check", "--json").out
	has(t, "no database", out, `"level":"fail","subject":"database"`)
	if begin := time.Now(); true {
		must(t, exitFailed, with(env, "RELAY_DATABASE_URL", "postgres://u@"+silent(t)+"/x?sslmode=disable"), "check")
		if took := time.Since(begin); took > checkTimeout+generous/3 {
			t.Errorf("a silent database: %v", took)
		}
	}
}

func with(env config.Environ, name, value string) config.Environ {
	out := config.Environ{name: value}
	for k, v := range env {
		if k != name {
			out[k] = v
		}
	}
	return out
}
