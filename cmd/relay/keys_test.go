package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

const orderedRoutes = `[{kind: close, to: ["discard:"], order: key}, {kind: more, to: ["discard:"], order: key}, {kind: skip, to: ["discard:"], order: key, dead: skip}]`

func TestKeysCommands(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := on(db, map[string]string{"RELAY_ROUTES": orderedRoutes})
	if out := must(t, exitDone, env, "keys", "list").out; out != "" {
		t.Errorf("nothing is closed, but listed: %s", out)
	}
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, last_error, finished_at)
		SELECT kind, key, '1', 'dead', 'no such luck', now() FROM unnest('{close,more,skip,plain}'::text[]) kind, unnest('{z,"",only}'::text[]) key
		WHERE key <> 'only' OR kind = 'close'`)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'close', 'z', '1' FROM generate_series(1, 4)`)

	list := must(t, exitDone, env, "keys", "list").out
	has(t, "the list", list, "close ", `"z"`, `""`, "more ", "no such luck", "    4  no")
	hasNot(t, "the list", list, "skip", "plain")
	if lines := strings.Count(list, "\n"); lines != 5 {
		t.Errorf("%d lines, want 5:\n%s", lines, list)
	}
	has(t, "without routes", must(t, exitDone, on(db, nil), "keys", "list").out, "skip", "plain")
	var k closedKey
	if err := json.Unmarshal([]byte(must(t, exitDone, env, "keys", "list", "--kind", "close", "--key", "z", "--json").out), &k); err != nil ||
		k.Waiting != 4 || k.Key != "z" || k.ClosedAt == nil || k.Job == 0 {
		t.Errorf("as JSON: %+v, %v", k, err)
	}
	has(t, "the status", must(t, exitDone, env, "status").out, "CLOSED KEYS")

	has(t, "closed twice", must(t, exitFailed, env, "keys", "reopen", "z").err, `key "z" is closed in 2 kinds (close, more)`)
	has(t, "not closed", must(t, exitFailed, env, "keys", "reopen", "nobody").err, `key "nobody" is not closed`)
	has(t, "not closed there", must(t, exitFailed, env, "keys", "reopen", "only", "--kind", "more").err, `not closed in kind more`)
	must(t, exitUsage, env, "keys", "reopen")
	must(t, exitUsage, env, "keys", "reopen", "z", "--requeue", "--discard")
	must(t, exitUsage, env, "keys", "list", "--limit", "0")

	row := func(kind, key string) string {
		return testdb.One[string](t, db, `SELECT coalesce((SELECT status FROM jobs WHERE kind = $1 AND key = $2 AND (last_error IS NOT NULL)), 'gone')
			|| ' ' || (SELECT count(*) FROM relay_closed_keys WHERE kind = $1 AND key = $2)`, kind, key)
	}
	has(t, "dry run", must(t, exitDone, env, "keys", "reopen", "z", "--kind", "close", "--requeue", "--dry-run").out, `dry run: reopened key "z" of kind close: dead jobs requeued: 1`)
	for _, c := range []struct {
		args []string
		kind string
		key  string
		want string
	}{
		{nil, "close", "z", "dead 1"}, // the dry run
		{[]string{"only"}, "close", "only", "dead 0"},
		{[]string{"z", "--kind", "close", "--requeue"}, "close", "z", "ready 0"},
		{[]string{"z", "--discard"}, "more", "z", "gone 0"},
	} {
		if c.args != nil {
			must(t, exitDone, env, append([]string{"keys", "reopen"}, c.args...)...)
		}
		if got := row(c.kind, c.key); got != c.want {
			t.Errorf("after %v: %s, want %s", c.args, got, c.want)
		}
	}
	if left := strings.Count(must(t, exitDone, env, "keys", "list").out, "\n"); left != 2 {
		t.Errorf("%d closed keys are left, want 2", left)
	}
}

// A route that keeps the order of keys needs its index: check and run say so and name the remedy.
func TestOrderNeedsItsIndex(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	env := on(db, map[string]string{"RELAY_ROUTES": orderedRoutes, "RELAY_ADMIN_ADDR": "off"})
	must(t, exitDone, env, "migrate", "up", "--without-order")
	has(t, "check", must(t, exitFailed, env, "check").out, "fail", "order index", "jobs_order_idx", "relay migrate up")
	has(t, "run", must(t, exitFailed, env, "run").err, "jobs_order_idx", "relay migrate up", "RELAY_MIGRATE=true")
	must(t, exitDone, env, "migrate", "up")
	has(t, "check", must(t, exitDone, env, "check").out, "order index")
}
