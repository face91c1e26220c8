package migrations_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// Each case makes one row, changes it as somebody by hand, an old worker or a relay would, and looks at what the trigger
// made of it.
func TestStamping(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		for _, c := range []struct{ name, insert, update, want string }{
			{"insert ready", `('k', '1', 'ready', NULL, NULL, NULL)`, ``, `finished false, error NULL, token NULL`},
			{"insert done", `('k', '1', 'done', NULL, NULL, NULL)`, ``, `finished true, error NULL, token NULL`},
			{"insert done with a time", `('k', '1', 'done', NULL, '2020-01-01Z', 5)`, ``, `finished 2020, error NULL, token 5`},
			{"insert dead", `('k', '1', 'dead', NULL, NULL, NULL)`, ``, `finished true, error no reason recorded, token NULL`},
			{"insert dead with a time", `('k', '1', 'dead', NULL, '2020-01-01Z', NULL)`, ``, `finished 2020, error no reason recorded, token NULL`},
			{"insert dead with a reason", `('k', '1', 'dead', 'boom', NULL, NULL)`, ``, `finished true, error boom, token NULL`},
			{"insert ready with a time", `('k', '1', 'ready', NULL, '2020-01-01Z', NULL)`, ``, `finished false, error NULL, token NULL`},
			{"insert running with a token", `('k', '1', 'running', NULL, NULL, 5)`, ``, `finished false, error NULL, token 5`},

			{"old worker completes", `('k', '1', 'running', NULL, NULL, NULL)`, `status = 'done'`, `finished true, error NULL, token NULL`},
			{"relay completes", `('k', '1', 'running', NULL, NULL, 5)`, `status = 'done', finished_at = '2020-01-01Z'`, `finished 2020, error NULL, token 5`},
			{"old worker buries", `('k', '1', 'running', NULL, NULL, NULL)`, `status = 'dead'`, `finished true, error no reason recorded, token NULL`},
			{"relay buries", `('k', '1', 'running', NULL, NULL, 5)`, `status = 'dead', last_error = 'boom', finished_at = '2020-01-01Z'`, `finished 2020, error boom, token 5`},
			{"requeue of a dead job", `('k', '1', 'dead', 'boom', NULL, 5)`, `status = 'ready'`, `finished false, error boom, token 5`},
			{"late done of a dead job", `('k', '1', 'dead', 'boom', '2020-01-01Z', 5)`, `status = 'done', last_error = NULL`, `finished 2020, error NULL, token 5`},
			{"unfinished by hand", `('k', '1', 'done', NULL, NULL, NULL)`, `status = 'running'`, `finished false, error NULL, token NULL`},

			{"old worker claims after a relay", `('k', '1', 'ready', NULL, NULL, 5)`, `status = 'running', attempts = attempts + 1`, `finished false, error NULL, token NULL`},
			{"by hand without attempts", `('k', '1', 'ready', NULL, NULL, 5)`, `status = 'running'`, `finished false, error NULL, token NULL`},
			{"relay claims after a relay", `('k', '1', 'ready', NULL, NULL, 5)`, `status = 'running', attempts = attempts + 1, lease_token = 6`, `finished false, error NULL, token 6`},
			{"relay claims for the first time", `('k', '1', 'ready', NULL, NULL, NULL)`, `status = 'running', lease_token = 6`, `finished false, error NULL, token 6`},
			{"old worker takes over a running job", `('k', '1', 'running', NULL, NULL, 5)`, `status = 'running', attempts = attempts + 1`, `finished false, error NULL, token NULL`},
			{"running job written back as it was", `('k', '1', 'running', NULL, NULL, 5)`, `status = 'running', max_attempts = 9`, `finished false, error NULL, token 5`},
			{"extension of a lease", `('k', '1', 'running', NULL, NULL, 5)`, `leased_until = now()`, `finished false, error NULL, token 5`},
			{"claim of a done job", `('k', '1', 'done', NULL, NULL, 5)`, `status = 'running'`, `finished false, error NULL, token NULL`},
			{"reap keeps the token", `('k', '1', 'running', NULL, NULL, 5)`, `status = 'ready', leased_until = NULL`, `finished false, error NULL, token 5`},
		} {
			t.Run(c.name, func(t *testing.T) {
				id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, status, last_error, finished_at, lease_token) VALUES `+c.insert+` RETURNING id`)
				if c.update != "" {
					db.Exec(t, `UPDATE jobs SET `+c.update+` WHERE id = $1`, id)
				}
				got := testdb.One[string](t, db, `SELECT format('finished %s, error %s, token %s',
CASE WHEN finished_at < '2021-01-01' THEN '2020' ELSE (finished_at BETWEEN now() - interval '1 minute' AND now() + interval '1 minute' AND finished_at IS NOT NULL)::text END,
coalesce(last_error, 'NULL'), coalesce(lease_token::text, 'NULL')) FROM jobs WHERE id = $1`, id)
				if got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			})
		}
	})
}

// Every way into dead and out of it keeps the closed keys right.
func TestClosedKeys(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		closed := func() string {
			return testdb.One[string](t, db, `SELECT coalesce(string_agg(kind || '/' || key || '/' || job, ' ' ORDER BY job), '') FROM relay_closed_keys`)
		}
		id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload) VALUES ('k', 'a', '1') RETURNING id`)
		first := fmt.Sprintf("k/a/%d", id)
		for _, step := range []struct{ name, set, want string }{
			{"running", `status = 'running'`, ""},
			{"dead", `status = 'dead'`, first},
			{"dead again", `status = 'dead', last_error = 'other'`, first},
			{"requeued", `status = 'ready', attempts = 0`, ""},
			{"dead once more", `status = 'dead'`, first},
			{"another column", `priority = 3`, first},
			{"late done", `status = 'done'`, ""},
			{"dead from done", `status = 'dead'`, first},
		} {
			db.Exec(t, `UPDATE jobs SET `+step.set+` WHERE id = $1`, id)
			if got := closed(); got != step.want {
				t.Errorf("%s: closed keys %q, want %q", step.name, got, step.want)
			}
		}
		second := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload, status) VALUES ('k', 'a', '1', 'dead') RETURNING id`)
		db.Exec(t, `INSERT INTO jobs (kind, payload, status) VALUES ('k', '1', 'dead')`)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, replay_of) VALUES ('k', 'a', '1', 'dead', 1)`)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload, replay_of) VALUES ('k', 'b', '1', 1)`)
		db.Exec(t, `UPDATE jobs SET status = 'dead' WHERE key = 'b'`)
		if got, want := closed(), fmt.Sprintf("%s k/a/%d", first, second); got != want {
			t.Errorf("closed keys %q, want %q: none for a job without a key or for a copy", got, want)
		}
		db.Exec(t, `UPDATE jobs SET status = 'ready' WHERE id = $1`, id)
		if got, want := closed(), fmt.Sprintf("k/a/%d", second); got != want {
			t.Errorf("closed keys after one of two is requeued: %q, want %q", got, want)
		}
	})
}

// A role that may change jobs needs no right on the helper table for a job's death.
func TestClosingAKeyNeedsNoGrant(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	role := db.Schema + "_w"
	db.Exec(t, `CREATE ROLE `+role)
	db.Exec(t, `GRANT USAGE ON SCHEMA `+db.Schema+` TO `+role+`; GRANT SELECT, INSERT, UPDATE ON jobs TO `+role)
	t.Cleanup(func() { dropRole(t, db, role) })
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		`SET LOCAL ROLE ` + role,
		`INSERT INTO jobs (kind, key, payload) VALUES ('k', 'a', '1')`,
		`UPDATE jobs SET status = 'dead'`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := testdb.One[int](t, db, `SELECT count(*) FROM relay_closed_keys`); got != 1 {
		t.Errorf("closed keys: got %d, want 1", got)
	}
}

func TestB08Checks(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, options)
		for _, c := range []struct{ sql, constraint string }{
			{`(kind, payload) VALUES ('k', 'null')`, ""},
			{`(kind, body) VALUES ('k', '')`, ""},
			{`(kind, payload) VALUES (repeat('k', 255), '1')`, ""},
			{`(kind, payload, key) VALUES ('k', '1', repeat('k', 1024))`, ""},
			{`(kind, payload, key) VALUES ('k', '1', '')`, ""},
			{`(kind, payload, headers) VALUES ('k', '1', '{"a": null}')`, ""},
			{`(kind, payload, attempts, max_attempts) VALUES ('k', '1', 2147483647, -1)`, ""},
			{`(kind) VALUES ('k')`, "relay_content"},
			{`(kind, payload, body) VALUES ('k', '1', 'a')`, "relay_content"},
			{`(kind, payload) VALUES ('', '1')`, "relay_kind"},
			{`(kind, payload) VALUES (repeat('k', 256), '1')`, "relay_kind"},
			{`(kind, payload) VALUES (repeat('é', 128), '1')`, "relay_kind"},
			{`(kind, payload, key) VALUES ('k', '1', repeat('k', 1025))`, "relay_key"},
			{`(kind, payload, key) VALUES ('k', '1', repeat('é', 513))`, "relay_key"},
			{`(kind, payload, status) VALUES ('k', '1', 'waiting')`, "relay_status"},
			{`(kind, payload, status) VALUES ('k', '1', '')`, "relay_status"},
			{`(kind, payload, headers) VALUES ('k', '1', '[]')`, "relay_headers"},
			{`(kind, payload, headers) VALUES ('k', '1', 'null')`, "relay_headers"},
			{`(kind, payload, headers) VALUES ('k', '1', '"a"')`, "relay_headers"},
		} {
			_, err := db.Pool.Exec(t.Context(), `INSERT INTO jobs `+c.sql)
			if got := constraintOf(err); got != c.constraint || (err != nil) != (c.constraint != "") {
				t.Errorf("%s: got constraint %q (%v), want %q", c.sql, got, err, c.constraint)
			}
		}
		// The longest kind and key, incompressible, still fit into the indexes.
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT left(string_agg(md5(random()::text), ''), 255), left(string_agg(md5(random()::text), ''), 1024), '1'
FROM generate_series(1, 40)`)
		for _, share := range []string{"-1", "101"} {
			_, err := db.Pool.Exec(t.Context(), `INSERT INTO relay_kinds (kind, share) VALUES ('k', `+share+`)`)
			if constraintOf(err) == "" {
				t.Errorf("a share of %s: got %v, want a check to refuse it", share, err)
			}
		}
	})
}
