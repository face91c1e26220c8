package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/testdb"
)

// doneJobs are n of a and n of b that relays own.
const doneJobs = `INSERT INTO jobs (kind, key, payload, status, delivered)
SELECT k, 'k' || g % 2, to_jsonb(g), 'done', '{discard:}' FROM unnest('{a,b}'::text[]) k, generate_series(1, $1::int) g ORDER BY g, k`

func newHistory(t *testing.T, n int) (*testdb.DB, config.Environ) {
	t.Helper()
	db := testdb.New(t)
	db.Exec(t, doneJobs, n)
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('a', 100), ('b', 100)`)
	return db, on(db, nil)
}

const copiesOf = `SELECT replay_of FROM jobs WHERE replay_of IS NOT NULL ORDER BY id`

func TestReplayCommand(t *testing.T) {
	t.Parallel()
	db, env := newHistory(t, 50)
	replay := func(code int, args ...string) outcome {
		t.Helper()
		return must(t, code, env, append([]string{"replay", "--rate", "10000"}, args...)...)
	}
	dry := replay(exitDone, "--kind", "a", "--dry-run")
	has(t, "dry run", dry.out, "KIND", "a     50    0", "dry run: name replay-", "copied 50, skipped 0, copied in all 0\n")
	var plan replaySummary
	if err := json.Unmarshal([]byte(replay(exitDone, "--kind", "a", "--dry-run", "--json").out), &plan); err != nil || len(plan.Kinds) != 1 || plan.Kinds[0].Jobs != 50 || plan.Kinds[0].First == nil || !plan.DryRun || plan.Finished {
		t.Errorf("%+v, %v", plan, err)
	}
	if n := len(testdb.Column[int64](t, db, copiesOf)); n != 0 {
		t.Errorf("%d copies after a dry run", n)
	}
	run := replay(exitDone, "--kind", "a", "--key", "k1")
	name := strings.Fields(strings.TrimPrefix(run.out, "name "))[0]
	if want := "name " + name + " copied 25, skipped 0, copied in all 25\n"; run.out != want {
		t.Errorf("%q, want %q", run.out, want)
	}
	if got, want := testdb.Column[int64](t, db, copiesOf), testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE kind = 'a' AND key = 'k1' AND replay_of IS NULL ORDER BY id`); !slices.Equal(got, want) {
		t.Errorf("copies of %v, want of %v", got, want)
	}
	has(t, "a finished one", replay(exitFailed, "--key", "k1", "--kind", "a").err, strings.TrimSuffix(name, ","), "--again")
	var again replaySummary
	if err := json.Unmarshal([]byte(replay(exitDone, "--kind", "a", "--key", "k1", "--again", "--json").out), &again); err != nil || again.Copied != 25 || again.InAll != 25 || !again.Finished || again.Kinds != nil {
		t.Errorf("%+v, %v", again, err)
	}
	replay(exitDone, "--name", "n", "--since", "2h", "--until", "+1h", "--limit", "3")
	has(t, "another filter", replay(exitFailed, "--name", "n", "--since", "3h", "--until", "+1h", "--limit", "3").err, "since was 2h0m0s and is 3h0m0s")
	ids := testdb.Column[string](t, db, `SELECT id::text FROM jobs ORDER BY id LIMIT 2`)
	has(t, "by id", replay(exitDone, "--id", ids[0], "--id", "99999999", "--id", ids[1]).out, "copied 2, skipped 1,")
	has(t, "no such id", replay(exitFailed, "--id", "99999999").err, "no done jobs")
	db.Exec(t, `UPDATE relay_kinds SET share = 25 WHERE kind = 'b'`)
	has(t, "share", replay(exitFailed, "--all").err, "relay kinds set b 100")
	has(t, "no row", must(t, exitFailed, with(env, "RELAY_TABLE", testdb.Empty(t).Table), "replay", "--all").err, "relay migrate up")
}

// --destination sends to one of a route's destinations what it hasn't had.
func TestReplayToADestination(t *testing.T) {
	t.Parallel()
	db, env := newHistory(t, 10)
	env = with(env, "RELAY_ROUTES", `[{kind: a, to: ["discard:", "stdout:"]}, {kind: b, to: ["discard:"]}]`)
	db.Exec(t, `UPDATE jobs SET delivered = '{discard:,stdout:}' WHERE payload = '3'`)
	o := must(t, exitDone, env, "replay", "--kind", "a", "--destination", "stdout:")
	has(t, "summary", o.out, "copied 9, skipped 1,")
	has(t, "remedy", o.err, "stdout: has had", "--again")
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL AND delivered = '{discard:}'`); n != 9 {
		t.Errorf("%d copies for one destination alone", n)
	}
	had := testdb.One[string](t, db, `SELECT id::text FROM jobs WHERE payload = '3' AND replay_of IS NULL`)
	has(t, "by id, all had", must(t, exitDone, env, "replay", "--id", had, "--destination", "stdout:").out, "copied 0, skipped 1,")
	has(t, "again", must(t, exitDone, env, "replay", "--kind", "a", "--destination", "stdout:", "--again").out, "copied 10, skipped 0,")
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"--kind b --destination stdout:":      {exitUsage, `"b" has discard:`},
		"--kind c --destination stdout:":      {exitUsage, `no route matches the kind "c"`},
		"--all --destination kafka:x":         {exitUsage, "the routes have discard:, stdout:"},
		"--all --destination stdout:":         {exitFailed, `the route of the kind "b" has discard:`},
		"--all --name x --destination stdout": {exitUsage, "the routes have"},
	} {
		has(t, line, must(t, c.code, env, append([]string{"replay"}, strings.Fields(line)...)...).err, c.says)
	}
	has(t, "no routes", must(t, exitUsage, on(db, nil), "replay", "--all", "--destination", "stdout:").err, "RELAY_ROUTES")
}

// A kill at any moment repeats and loses nothing.
func TestReplaySurvivesKills(t *testing.T) {
	t.Parallel()
	db, env := newHistory(t, 1500)
	want := testdb.Column[int64](t, db, `SELECT id FROM jobs ORDER BY id`)
	args := []string{"replay", "--since", "1h", "--rate", "2000"}
	for kills := 1; kills <= 3; kills++ {
		p := start(t, env, args...)
		eventually(t, "it is in the middle", func() bool {
			select {
			case <-p.ended:
				return true
			default:
				return testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL`) >= kills*600
			}
		})
		p.signal(syscall.SIGKILL)
		if code := p.exit(generous); code != -1 {
			t.Fatalf("it ended with %d before the kill", code)
		}
	}
	o := must(t, exitDone, env, args...)
	if got := testdb.Column[int64](t, db, copiesOf); !slices.Equal(got, want) {
		t.Errorf("%d copies of %d jobs, want each once in the order of id", len(got), len(want))
	}
	has(t, "summary", o.out, fmt.Sprintf("copied in all %d", len(want)))
}

// SIGTERM stops it between two batches, and it says how to go on.
func TestReplayStops(t *testing.T) {
	t.Parallel()
	db, env := newHistory(t, 500)
	p := start(t, env, "replay", "--all", "--rate", "200")
	eventually(t, "it has begun", func() bool {
		return testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL`) > 0
	})
	p.signal(syscall.SIGTERM)
	if code := p.exit(generous); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	n := len(testdb.Column[int64](t, db, copiesOf))
	has(t, "summary", p.out.String(), fmt.Sprintf("copied %d, skipped 0, copied in all %d", n, n))
	has(t, "standard error", p.err.String(), "the same command goes on")
	has(t, "the rest", must(t, exitDone, env, "replay", "--all", "--rate", "10000").out, fmt.Sprintf("copied %d, skipped 0, copied in all 1000", 1000-n))
}

func TestReplayUsage(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"":                               "--all",
		"--all --kind a":                 "not both",
		"--limit 3":                      "(--kind, --key, --since, --until, --id) or --all",
		"--kind=":                        "--kind is empty",
		"--all --rate 0":                 "from 1 to 100000",
		"--all --rate fast":              "--rate",
		"--all --name=":                  "--name is empty",
		"--all --destination=":           "--destination is empty",
		"--all --since yesterday":        "--since",
		"--all --error x":                "--error",
		"--kind a --since 1h --until 2h": "--since must be before --until",
		"--all --name " + strings.Repeat("n", 101): "--name",
	} {
		o := must(t, exitUsage, good(), append([]string{"replay"}, strings.Fields(line)...)...)
		has(t, line, o.err, says)
		if o.out != "" || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%s: standard output %q, standard error %q", line, o.out, o.err)
		}
	}
}

// A requeue comes evenly as well, and a dead copy says what it is a copy of.
func TestDeadCopiesAndRate(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, last_error, replay_of) SELECT 'a', '1', 'dead', 'x', 4711 FROM generate_series(1, 30)`)
	id := testdb.One[string](t, db, `SELECT min(id)::text FROM jobs`)
	has(t, "list", must(t, exitDone, env, "dead", "list", "--limit", "1", "--json").out, `"replay_of":4711`)
	has(t, "by id", must(t, exitDone, env, "dead", "list", "--id", id, "--json").out, `"replay_of":4711`)
	has(t, "show", must(t, exitDone, env, "dead", "show", id).out, "copy of", "4711")
	has(t, "show", must(t, exitDone, env, "dead", "show", id, "--json").out, `"replay_of":4711`)
	begin := time.Now()
	has(t, "requeue", must(t, exitDone, env, "dead", "requeue", "--all", "--rate", "30").out, "changed 30,")
	if took := time.Since(begin); took < 850*time.Millisecond {
		t.Errorf("30 at 30 a second took %v", took)
	}
	has(t, "a bad rate", must(t, exitUsage, env, "dead", "requeue", "--all", "--rate", "0").err, "--rate")
}

// On a terminal a bar shows how far it is and what it waits for, and goes away.
func TestReplayBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := replayBar{to: &out}
	b.show(claim.Replayed{Total: 500})
	time.Sleep(60 * time.Millisecond) // the bar is drawn at most so often
	b.show(claim.Replayed{Total: 500, Copied: 250})
	time.Sleep(60 * time.Millisecond)
	b.show(claim.Replayed{Total: 500, Copied: 250, Waiting: 100})
	b.end()
	has(t, "the bar", out.String(), "250/500", "waiting for relays, 100 not finished")
	out.Reset()
	(&replayBar{to: &out, off: true}).show(claim.Replayed{Copied: 1})
	if out.Len() > 0 {
		t.Errorf("without a terminal: %q", out.String())
	}
}
