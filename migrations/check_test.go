package migrations_test

import (
	"errors"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		db   *testdb.DB
		sql  string
		want error
		text string
	}{
		{"migrated", testdb.New(t), ``, nil, ""},
		{"nothing there", testdb.Empty(t), ``, migrations.ErrNotMigrated, "relay migrate up"},
		{"somebody's table", testdb.Legacy(t, 4), ``, migrations.ErrNotMigrated, "relay migrate up"},
		{"half way", testdb.New(t), `DELETE FROM relay_migrations WHERE version > 3`, migrations.ErrNotMigrated, "version 3"},
		{"bookkeeping emptied", testdb.New(t), `DELETE FROM relay_migrations`, migrations.ErrNotMigrated, "relay migrate up"},
		{"newer, supports this one", testdb.New(t), `INSERT INTO relay_migrations (version, name, supports) VALUES (7, 'x', 6), (8, 'y', 5)`, nil, ""},
		{"newer, doesn't", testdb.New(t), `INSERT INTO relay_migrations (version, name, supports) VALUES (7, 'x', 7), (8, 'y', 6)`, migrations.ErrTooNew, "newer relay"},
		{"another table's schema", testdb.New(t), `ALTER TABLE jobs RENAME TO others; CREATE TABLE jobs (id int)`, migrations.ErrNotMigrated, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.sql != "" {
				c.db.Exec(t, c.sql)
			}
			table := "jobs"
			if c.name == "another table's schema" {
				table, c.text = "others", "schema of its own"
			}
			err := migrations.Check(t.Context(), c.db.Pool, table)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.text != "" {
				wantErr(t, err, c.text)
			}
		})
	}
}

// A newer schema that supports this version is left alone by up; one that doesn't is refused, and nobody steps down
// what he doesn't know.
func TestUpAndDownOnANewerSchema(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o := migrations.Options{Table: db.Table}
	db.Exec(t, `INSERT INTO relay_migrations (version, name, supports) VALUES (7, 'x', 6)`)
	before := shape(t, db)
	if err := migrations.Up(t.Context(), db.Config, o); err != nil {
		t.Errorf("up: %v", err)
	}
	if err := migrations.Down(t.Context(), db.Config, o); !errors.Is(err, migrations.ErrTooNew) {
		t.Errorf("down: got %v, want ErrTooNew", err)
	}
	db.Exec(t, `UPDATE relay_migrations SET supports = 7 WHERE version = 7`)
	if err := migrations.Up(t.Context(), db.Config, o); !errors.Is(err, migrations.ErrTooNew) {
		t.Errorf("up: got %v, want ErrTooNew", err)
	}
	sameShape(t, shape(t, db), before)
	steps, err := migrations.Status(t.Context(), db.Config, o)
	if err != nil || len(steps) != 7 || steps[6].Version != 7 || steps[6].AppliedAt.IsZero() {
		t.Errorf("status: got %+v, %v", steps, err)
	}
}

func TestCheckWithoutASchema(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = no_such_schema`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), tx, "jobs"); !errors.Is(err, migrations.ErrNotMigrated) {
		t.Errorf("got %v, want ErrNotMigrated", err)
	}
}
