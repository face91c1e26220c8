package main

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/testdb"
)

// grants are the statements that docs/table.md gives for least privilege, one a line, for the test's schema and roles.
func grants(t *testing.T, db *testdb.DB) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/table.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Least privilege")
	_, section, _ = strings.Cut(section, "```sql\n")
	text, _, found := strings.Cut(section, "```")
	if !found {
		t.Fatal("docs/table.md has no statements for least privilege")
	}
	text = regexp.MustCompile(`\bapp\b`).ReplaceAllString(text, db.Schema)
	text = regexp.MustCompile(`\b(relay|shop|old_worker)\b`).ReplaceAllString(text, db.Schema+"_$1")
	var all []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "GRANT ") {
			all = append(all, line)
		}
	}
	return all
}

// withRoles makes the three roles of that page, with its grants; as gives the database's URL for one of them.
func withRoles(t *testing.T, db *testdb.DB) (as func(role string) string) {
	t.Helper()
	for _, role := range []string{"relay", "shop", "old_worker"} {
		name := pgx.Identifier{db.Schema + "_" + role}.Sanitize()
		db.Exec(t, "CREATE ROLE "+name+" LOGIN PASSWORD 'weak'")
		t.Cleanup(func() { dropRole(t, db, name) })
	}
	for _, grant := range grants(t, db) {
		db.Exec(t, grant)
	}
	return func(role string) string {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(db.Schema+"_"+role, "weak")
		return u.String()
	}
}

// dropRole runs after the test's own context has ended, and before the schema goes.
func dropRole(t *testing.T, db *testdb.DB, name string) {
	ctx := t.Context()
	conn, err := pgx.ConnectConfig(context.WithoutCancel(ctx), db.Config)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(context.WithoutCancel(ctx), "DROP OWNED BY "+name+"; DROP ROLE "+name); err != nil {
		t.Error(err)
	}
}

// The grants of the documentation are enough for every command, and for what applications and old workers do.
func TestDocumentedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	as := withRoles(t, db)
	env := on(db, config.Environ{
		"RELAY_DATABASE_URL": as("relay"), "RELAY_ADMIN_ADDR": freeAddr(t), "RELAY_RETENTION": "1h", "RELAY_LOG_LEVEL": "debug",
		"RELAY_ROUTES":        `[{kind: good, to: ["discard:"]}, {kind: ordered, to: ["kafka:{header.none}"], order: key}]`,
		"RELAY_KAFKA_BROKERS": "127.0.0.1:1",
	})
	var said strings.Builder
	do := func(code int, args ...string) string {
		t.Helper()
		o := must(t, code, env, args...)
		said.WriteString(o.out + o.err)
		return o.out
	}
	has(t, "check", do(exitFailed, "check"), "ok    privileges", "ok    schema", "ok    claim plan")
	p := start(t, env, "run")
	p.ready(200)
	do(exitDone, "health", "--ready")
	do(exitDone, "enqueue", "--kind", "good", "--payload", "1")
	if o := relayIn(env, `{"kind":"ordered","key":"k","payload":1}`+"\n"+`{"kind":"ordered","key":"l","payload":1}`+"\n", "enqueue", "-"); o.code != exitDone {
		t.Fatal(o.err)
	}
	eventually(t, "one done, two dead", func() bool {
		return testdb.One[string](t, db, "SELECT string_agg(status, ' ' ORDER BY status) FROM jobs") == "dead dead done"
	})
	do(exitDone, "migrate", "status")
	do(exitDone, "migrate", "sql")
	has(t, "status", do(exitDone, "status"), "ordered")
	has(t, "dead list", do(exitDone, "dead", "list"), "header")
	ids := testdb.Column[string](t, db, "SELECT id::text FROM jobs WHERE status = 'dead' ORDER BY id")
	do(exitDone, "dead", "show", ids[0])
	has(t, "keys list", do(exitDone, "keys", "list"), `"k"`, `"l"`)
	has(t, "requeue", do(exitDone, "dead", "requeue", "--id", ids[0]), "changed 1")
	eventually(t, "dead again", func() bool {
		return testdb.One[int](t, db, "SELECT count(*) FROM jobs WHERE status = 'dead' AND id = $1::text::bigint", ids[0]) == 1
	})
	has(t, "reopen", do(exitDone, "keys", "reopen", "k"), "reopened")
	has(t, "discard", do(exitDone, "dead", "discard", "--all"), "changed 2")
	has(t, "kinds list", do(exitDone, "kinds", "list"), "good")
	do(exitDone, "kinds", "set", "good", "50")
	do(exitDone, "kinds", "set", "good", "100")
	has(t, "replay", do(exitDone, "replay", "--kind", "good", "--dry-run"), "good")
	has(t, "replay", do(exitDone, "replay", "--kind", "good"), "copied 1")
	has(t, "replay again", do(exitDone, "replay", "--kind", "good", "--again"), "copied 1")
	eventually(t, "the copies are done", func() bool { return done(t, db) == 3 })
	p.signal(syscall.SIGTERM)
	if code := p.exit(generous); code != 0 {
		t.Errorf("exit %d", code)
	}
	hasNot(t, "the output", said.String()+p.err.String(), "permission denied", "42501")
	applicationsAndOldWorkers(t, db, as)
}

func applicationsAndOldWorkers(t *testing.T, db *testdb.DB, as func(string) string) {
	t.Helper()
	for _, test := range []struct{ role, sql, refused string }{
		{"shop", `INSERT INTO jobs (kind, key, headers, payload, run_at, priority, max_attempts) VALUES ('good', 'k', '{"a": "b"}', '1', now(), 1, 3) RETURNING id`, ""},
		{"shop", `INSERT INTO jobs (kind, body) VALUES ('good', '\x00')`, ""},
		{"shop", `SELECT relay_notify(), relay_key_lock('k')`, ""},
		{"shop", `SELECT payload FROM jobs`, "permission denied"},
		{"shop", `INSERT INTO jobs (kind, payload, lease_token) VALUES ('good', '1', 1)`, "permission denied"},
		{"shop", `UPDATE jobs SET status = 'done'`, "permission denied"},
		{"shop", `INSERT INTO relay_kinds VALUES ('x', 1)`, "permission denied"},
		{"old_worker", `INSERT INTO jobs (kind, key, payload, max_attempts) VALUES ('old', 'k', '1', 1)`, ""},
		{"old_worker", `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() - interval '1 second'
			WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND kind = 'old' AND NOT relay_owns(kind, key, id) FOR UPDATE SKIP LOCKED LIMIT 1)`, ""},
		{"old_worker", `UPDATE jobs SET status = 'dead' WHERE status = 'running' AND leased_until < now()`, ""},
		{"old_worker", `UPDATE relay_kinds SET share = 0`, "permission denied"},
		{"old_worker", `DELETE FROM jobs`, "permission denied"},
		{"relay", `DROP TABLE jobs`, "must be owner"},
		{"relay", `TRUNCATE jobs`, "permission denied"},
		{"relay", `INSERT INTO relay_migrations (version) VALUES (9)`, "permission denied"},
	} {
		conn, err := pgx.Connect(t.Context(), as(test.role))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), test.sql)
		_ = conn.Close(t.Context())
		if (test.refused == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %s: got %v, want %q", test.role, test.sql, err, test.refused)
		}
	}
	if n := testdb.One[int](t, db, "SELECT count(*) FROM relay_closed_keys WHERE kind = 'old'"); n != 1 {
		t.Errorf("the death of an old worker's job closed %d keys, want 1", n)
	}
}

// None of the relay's grants is too much, and check names each that is missing: what run needs as a failure.
func TestCheckNamesEachMissingGrant(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	as := withRoles(t, db)
	env := on(db, config.Environ{"RELAY_DATABASE_URL": as("relay"), "RELAY_ROUTES": toDiscard})
	hasNot(t, "check", must(t, exitDone, env, "check").out, "fail", "warn")
	operators := regexp.MustCompile(`INSERT on jobs|UPDATE on relay_kinds|on relay_replays`)
	tried := 0
	for _, grant := range grants(t, db) {
		m := regexp.MustCompile(`^GRANT ([A-Z, ]+) ON (` + db.Schema + `\..*) TO ` + db.Schema + `_relay;`).FindStringSubmatch(grant)
		if m == nil {
			continue
		}
		for _, table := range strings.Split(m[2], ", ") {
			for _, privilege := range strings.Split(m[1], ", ") {
				tried++
				db.Exec(t, "REVOKE "+privilege+" ON "+table+" FROM "+db.Schema+"_relay")
				missing := privilege + " on " + strings.TrimPrefix(table, db.Schema+".")
				if strings.HasSuffix(table, ".relay_migrations") {
					missing = "permission denied for table relay_migrations" // nothing else can be asked before
				}
				code, level := exitFailed, "fail"
				if operators.MatchString(missing) {
					code, level = exitDone, "warn"
				}
				out := must(t, code, env, "check").out
				if !regexp.MustCompile(level + ` .*` + missing).MatchString(out) {
					t.Errorf("check without %s: want %s: %s", missing, level, out)
				}
				db.Exec(t, "GRANT "+privilege+" ON "+table+" TO "+db.Schema+"_relay")
			}
		}
	}
	if tried != 13 {
		t.Errorf("%d rights, want 13", tried)
	}
	db.Exec(t, "REVOKE USAGE ON SCHEMA "+db.Schema+" FROM "+db.Schema+"_relay")
	has(t, "no USAGE", must(t, exitFailed, env, "check").out, "fail ")
}
