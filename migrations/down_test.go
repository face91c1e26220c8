package migrations_test

import (
	"errors"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// All steps down and up again, on a table that relay made.
func TestDownToNothing(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		db.Migrate(t, migrations.Options{})
		want := shape(t, db)
		downTo(t, db, 0)
		if got := shape(t, db); len(got) != 0 {
			t.Errorf("left after all steps down: %q", got)
		}
		if err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: db.Table}); err != nil {
			t.Errorf("down with nothing to undo: %v", err)
		}
		db.Migrate(t, migrations.Options{})
		sameShape(t, shape(t, db), want)
	})
}

// An adopted table is the same as before after all steps down, with every row.
func TestDownFromAdoption(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 400)
		db.Exec(t, `ALTER TABLE jobs ADD COLUMN created_at timestamptz NOT NULL DEFAULT now(), ADD COLUMN tenant text`)
		db.Exec(t, `UPDATE jobs SET last_error = 'boom' WHERE status = 'dead'`) // one without a reason would keep what it gets
		want := shape(t, db)
		rows := testdb.One[string](t, db, `SELECT md5(string_agg(jobs::text, '|' ORDER BY id)) FROM jobs`)
		db.Migrate(t, migrations.Options{})
		db.Exec(t, `UPDATE jobs SET status = status, lease_token = 7 WHERE status = 'running'`) // the relay's own is no loss
		downTo(t, db, 0)
		sameShape(t, shape(t, db), want)
		if got := testdb.One[string](t, db, `SELECT md5(string_agg(jobs::text, '|' ORDER BY id)) FROM jobs`); got != rows {
			t.Error("rows changed on the way up and down")
		}
		db.Migrate(t, migrations.Options{})
	})
}

// Each step that would lose something is refused, changes nothing, and does it with DropData.
func TestDownRefusesToLoseData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		from      int
	}{
		{"key", `INSERT INTO jobs (kind, payload, key) VALUES ('k', '1', 'a')`, 3},
		{"headers", `INSERT INTO jobs (kind, payload, headers) VALUES ('k', '1', '{}')`, 3},
		{"body", `INSERT INTO jobs (kind, body) VALUES ('k', 'abc')`, 3},
		{"priority", `INSERT INTO jobs (kind, payload, priority) VALUES ('k', '1', -1)`, 3},
		{"delivered", `INSERT INTO jobs (kind, payload, delivered) VALUES ('k', '1', '{kafka:a}')`, 3},
		{"replay", `INSERT INTO jobs (kind, payload, replay_of) VALUES ('k', '1', 1)`, 3},
		{"share", `INSERT INTO relay_kinds (kind) VALUES ('k')`, 2},
		{"closed key", `INSERT INTO relay_closed_keys (kind, key, job) VALUES ('k', 'a', 1)`, 2},
		{"unfinished replay", `INSERT INTO relay_replays (name, filters) VALUES ('r', '{}')`, 2},
		{"rows", `INSERT INTO jobs (kind, payload) VALUES ('k', '1')`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			db.Exec(t, c.sql)
			downTo(t, db, c.from)
			before := shape(t, db)
			err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: db.Table})
			if !errors.Is(err, migrations.ErrWouldLoseData) {
				t.Fatalf("got %v, want ErrWouldLoseData", err)
			}
			wantErr(t, err, "--drop-data")
			sameShape(t, shape(t, db), before)
			if err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: db.Table, DropData: true}); err != nil {
				t.Errorf("with DropData: %v", err)
			}
			if c.from == 3 {
				if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs`); got != 1 {
					t.Errorf("rows after the step down: got %d, want 1", got)
				}
			}
		})
	}
}

func TestRetire(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 40)
		o := migrations.Options{Table: db.Table}
		if err := migrations.Retire(t.Context(), db.Config, o); !errors.Is(err, migrations.ErrNotMigrated) {
			t.Errorf("retire before up: got %v, want ErrNotMigrated", err)
		}
		db.Migrate(t, migrations.Options{})
		fresh := testdb.New(t)
		for range 2 {
			if err := migrations.Retire(t.Context(), db.Config, o); err != nil {
				t.Fatal(err)
			}
			sameShape(t, without(shape(t, db), "jobs_status_check"), shape(t, fresh))
		}
	})
}
