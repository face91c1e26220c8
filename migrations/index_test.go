package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// Somebody else's object under the name of one of our indexes is refused before anything changes, whatever it is, by up,
// by sql and by the checks, on a table that is new to relay and on one that isn't; nobody drops it.
func TestTakenNames(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		for _, c := range []struct {
			name, sql, index, is string
		}{
			{"other columns", `CREATE INDEX jobs_pending_idx ON jobs (run_at) WHERE status = 'ready'`, "pending", "(run_at) WHERE (status = 'ready'::text)"},
			{"another order", `CREATE INDEX jobs_dead_idx ON jobs (kind, id DESC) WHERE last_error IS NOT NULL`, "dead", "(kind, id DESC)"},
			{"another method", `CREATE INDEX jobs_finished_idx ON jobs USING brin (kind)`, "finished", "USING brin (kind)"},
			{"unique", `CREATE UNIQUE INDEX jobs_dead_idx ON jobs (kind, id)`, "dead", "unique USING btree (kind, id)"},
			{"an expression", `CREATE INDEX jobs_order_idx ON jobs ((payload->>'key'))`, "order", "payload"},
			{"another table", `CREATE TABLE other (kind text); CREATE INDEX jobs_pending_idx ON other (kind)`, "pending", "an index of another table"},
			{"no index", `CREATE TABLE jobs_pending_idx ()`, "pending", "no index"},
			{"half built", `CREATE INDEX jobs_pending_idx ON jobs (run_at); UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_pending_idx'::regclass`, "pending", "(run_at)"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				db := testdb.LegacyOn(t, server, 40)
				o := migrations.Options{Table: db.Table}
				db.Exec(t, c.sql)
				before := shape(t, db)
				err := migrations.Up(t.Context(), db.Config, o)
				if !errors.Is(err, migrations.ErrNotAdoptable) {
					t.Errorf("got %v, want ErrNotAdoptable", err)
				}
				wantErr(t, err, "jobs_"+c.index+"_idx", " is ", c.is, "must be USING btree (kind, ", "give it another name or drop it")
				sameShape(t, shape(t, db), before)
				var out bytes.Buffer
				if err := migrations.SQL(t.Context(), db.Config, o, &out); !errors.Is(err, migrations.ErrNotAdoptable) || out.Len() > 0 {
					t.Errorf("sql: got %v and %d bytes, want ErrNotAdoptable and nothing", err, out.Len())
				}
			})
		}
	})
}

// The same on a table that is migrated: an index that was replaced is named by the checks, stays when the step down
// drops ours, and an up that finds the name free again builds ours.
func TestTakenLater(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		o := migrations.Options{Table: db.Table}
		db.Migrate(t, migrations.Options{})
		whole := shape(t, db)
		check := func() error {
			return errors.Join(migrations.CheckIndexes(t.Context(), db.Pool, db.Table), migrations.CheckOrder(t.Context(), db.Pool, db.Table))
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"pending", "finished", "dead", "order"} {
			index := "jobs_" + name + "_idx"
			db.Exec(t, `DROP INDEX `+index)
			if err := check(); !errors.Is(err, migrations.ErrNotMigrated) && !errors.Is(err, migrations.ErrNoOrderIndex) {
				t.Errorf("check without %s: %v", index, err)
			}
			db.Migrate(t, migrations.Options{})
			sameShape(t, shape(t, db), whole)

			db.Exec(t, `DROP INDEX `+index+`; CREATE INDEX `+index+` ON jobs (run_at)`)
			for what, err := range map[string]error{"check": check(), "up": migrations.Up(t.Context(), db.Config, o)} {
				if !errors.Is(err, migrations.ErrNameTaken) {
					t.Errorf("%s with another %s: got %v, want ErrNameTaken", what, index, err)
				}
				wantErr(t, err, index, "is USING btree (run_at)")
			}
			db.Exec(t, `ALTER INDEX `+index+` RENAME TO somebodys_`+name)
			db.Migrate(t, migrations.Options{})
			if err := check(); err != nil {
				t.Errorf("after %s got its name back: %v", index, err)
			}
			db.Exec(t, `DROP INDEX `+index+`; ALTER INDEX somebodys_`+name+` RENAME TO `+index)
			downTo(t, db, 5)
			if testdb.One[bool](t, db, `SELECT to_regclass($1) IS NULL`, index) {
				t.Errorf("the step down dropped somebody else's %s", index)
			}
			db.Exec(t, `DROP INDEX `+index)
			db.Migrate(t, migrations.Options{})
			sameShape(t, shape(t, db), whole)
		}
	})
}

// Storage parameters, and a session that quotes all names, don't make an index another one; one that was left half built
// is built again.
func TestOursAllTheSame(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.LegacyOn(t, server, 40)
		o := migrations.Options{Table: db.Table}
		db.Config.RuntimeParams["quote_all_identifiers"] = "on"
		db.Migrate(t, migrations.Options{})
		for _, name := range []string{"pending", "finished", "dead", "order"} {
			db.Exec(t, `ALTER INDEX jobs_`+name+`_idx SET (fillfactor = 70)`)
		}
		before := testdb.Column[uint32](t, db, `SELECT indexrelid FROM pg_index WHERE indrelid = 'jobs'::regclass ORDER BY 1`)
		db.Migrate(t, migrations.Options{})
		if got := testdb.Column[uint32](t, db, `SELECT indexrelid FROM pg_index WHERE indrelid = 'jobs'::regclass ORDER BY 1`); len(got) != len(before) || got[len(got)-1] != before[len(before)-1] {
			t.Errorf("indexes %v, before %v", got, before)
		}
		db.Exec(t, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_pending_idx'::regclass`)
		if err := migrations.CheckIndexes(t.Context(), db.Pool, db.Table); !errors.Is(err, migrations.ErrNotMigrated) {
			t.Errorf("check of a half-built index: got %v, want ErrNotMigrated", err)
		}
		if err := migrations.Up(t.Context(), db.Config, o); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.ConnectConfig(t.Context(), db.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if err := migrations.CheckIndexes(t.Context(), conn, db.Table); err != nil {
			t.Error(err)
		}
	})
}

// Retire drops the old design's indexes, and nothing else that has their names.
func TestRetireLeavesOthers(t *testing.T) {
	t.Parallel()
	db := testdb.Legacy(t, 4)
	db.Exec(t, `DROP INDEX jobs_ready_idx; CREATE INDEX jobs_ready_idx ON jobs (kind)`)
	db.Migrate(t, migrations.Options{})
	if err := migrations.Retire(t.Context(), db.Config, migrations.Options{Table: db.Table}); err != nil {
		t.Fatal(err)
	}
	if got := testdb.Column[string](t, db, `SELECT n FROM unnest(ARRAY['jobs_ready_idx', 'jobs_running_idx']) n WHERE to_regclass(n) IS NOT NULL`); len(got) != 1 || got[0] != "jobs_ready_idx" {
		t.Errorf("left: %v", got)
	}
}
