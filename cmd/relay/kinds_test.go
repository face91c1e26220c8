package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/testdb"
)

// finish inserts n finished jobs of a kind, done by a relay or by somebody else.
func finish(t *testing.T, db *testdb.DB, kind string, n int, relay bool) {
	t.Helper()
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, lease_token) SELECT $1, 'key' || g, '1', 'done', CASE WHEN $3::boolean THEN 7 END
		FROM generate_series(1, $2::int) g`, kind, n, relay)
}

func TestKindsSet(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	set := func(want string, args ...string) string {
		t.Helper()
		o := must(t, exitDone, env, append([]string{"kinds", "set"}, args...)...)
		if strings.TrimSpace(o.out) != want {
			t.Errorf("kinds set %v: %q, want %q", args, o.out, want)
		}
		return o.err
	}
	set("mail: new, had no share, is 25", "mail", "25")
	set("mail: share was 25, is 0", "mail", "0")
	set("mail: share was 0, is 0", "mail", "0")
	set(`{"kind":"mail","was":0,"share":100}`, "--json", "mail", "100")
	set(`{"kind":"a*b","was":null,"share":1}`, "--json", `a\*b`, "1")
	if got := testdb.One[string](t, db, `SELECT string_agg(kind || ' ' || share, ', ' ORDER BY kind) FROM relay_kinds`); got != "a*b 1, mail 100" {
		t.Errorf("rows: %s", got)
	}
	if warned := set("mail: share was 100, is 50", "mail", "50"); warned != "" {
		t.Errorf("warned without routes: %s", warned)
	}
	env["RELAY_ROUTES"] = `[{kind: "ma*", to: ["discard:"], share: 5}]`
	has(t, "a route that says otherwise", set("mail: share was 50, is 51", "mail", "51"), "another share", `"route_share":5`)
	if warned := set("mail: share was 51, is 5", "mail", "5"); warned != "" {
		t.Errorf("warned although the route says the same: %s", warned)
	}
	has(t, "no schema", must(t, exitFailed, on(testdb.Empty(t), nil), "kinds", "set", "a", "1").err, "relay migrate up")
}

func TestKindsList(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, nil)
	has(t, "an empty table", must(t, exitDone, env, "kinds", "list").out, "no kinds")
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('mail', 25, now() - interval '5 minutes')`)
	finish(t, db, "mail", 24, true)
	finish(t, db, "mail", 72, false)
	insert(t, db, "mail", 40)
	finish(t, db, "foreign\x1b", 3, false)

	lines := strings.Split(strings.TrimSpace(must(t, exitDone, env, "kinds", "list").out), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4: %q", len(lines), lines)
	}
	has(t, "the foreign kind", lines[2], "foreign\uFFFD  -", "0 / 3", "0.0 %", "0 / 0", "10m0s")
	has(t, "the shared kind", lines[3], "mail", "25 %", "24 / 72", "0.1 / 0.2", "25.0 %", "5m0s")
	owned := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE finished_at IS NULL AND relay_owns(kind, key, id)`)
	has(t, "what waits", lines[3], fmt.Sprintf("%d / %d", owned, 40-owned))

	var mail struct {
		Kind          string
		Share         int
		Routed        *bool
		Relay, Others struct{ Done, Ready, Keys *int }
		Percent       float64 `json:"relay_percent"`
		PercentOfKeys float64 `json:"relay_percent_of_keys"`
		Notes         []string
	}
	read := func(env config.Environ) {
		t.Helper()
		out := must(t, exitDone, env, "kinds", "list", "--json").out
		_, line, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if err := json.Unmarshal([]byte(line), &mail); err != nil || mail.Kind != "mail" {
			t.Fatalf("%s: %v", out, err)
		}
	}
	read(env)
	if mail.Share != 25 || mail.Routed != nil || *mail.Relay.Done != 24 || *mail.Others.Keys != 72 || mail.Percent != 25 || mail.PercentOfKeys != 25 || len(mail.Notes) != 0 {
		t.Errorf("%+v", mail)
	}

	has(t, "a short retention", must(t, exitDone, with(env, "RELAY_RETENTION", "90s"), "kinds", "list").out, "1m30s")
	env["RELAY_RETENTION"] = "0"
	read(env)
	if mail.Relay.Done != nil || mail.Others.Done == nil {
		t.Errorf("where relays delete what is done: %+v", mail)
	}
	has(t, "where relays delete what is done", must(t, exitDone, env, "kinds", "list").out, "- / 72", "relay_jobs_settled_total")
	delete(env, "RELAY_RETENTION")

	db.Exec(t, `DELETE FROM jobs WHERE lease_token IS NOT NULL`)
	out := must(t, exitDone, env, "kinds", "list").out
	has(t, "where they do and nobody says so", out, "0 / 72", "mail: no done job of a relay", "RELAY_RETENTION=0")
	hasNot(t, "where they do and nobody says so", strings.Split(out, "\n")[3], "0.0 %")
	env["RELAY_ROUTES"] = `[{kind: mail, to: ["discard:"], share: 5}]`
	has(t, "a route that says otherwise", must(t, exitDone, env, "kinds", "list").out, "mail: its route says share: 5; the row's 25 holds")
}

// A row of relay_kinds holds, whatever the route says; run says so.
func TestRunWarnsOfAnotherShare(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ('says', 50), ('same', 5), ('says nothing', 50)`)
	p := start(t, on(db, config.Environ{"RELAY_ADMIN_ADDR": freeAddr(t),
		"RELAY_ROUTES": `[{kind: "says nothing", to: ["discard:"]}, {kind: "sa*", to: ["discard:"], share: 5}]`}), "run")
	p.ready(200)
	eventually(t, "it warns", func() bool { return strings.Contains(p.err.String(), "another share") })
	p.signal(syscall.SIGTERM)
	p.exit(generous)
	if n := strings.Count(p.err.String(), "another share"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	has(t, "the warning", p.err.String(), `"kind":"says"`, `"share":50`, `"route_share":5`)
	if got := testdb.One[int](t, db, `SELECT share FROM relay_kinds WHERE kind = 'says'`); got != 50 {
		t.Errorf("the row holds %d, want 50", got)
	}
}
