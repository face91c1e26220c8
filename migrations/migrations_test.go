package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

func TestUpTwiceAndTwiceAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Table}) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("four at once: %v", err)
		}
		first := shape(t, db)
		db.Migrate(t, migrations.Options{})
		sameShape(t, shape(t, db), first)
		if err := migrations.Check(t.Context(), db.Pool, "jobs"); err != nil {
			t.Errorf("check: %v", err)
		}
	})
}

// The search_path decides where an unqualified name is, as it does for INSERT INTO jobs.
func TestUnqualifiedTable(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	if err := migrations.Up(t.Context(), db.Config, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	fresh := testdb.New(t)
	sameShape(t, shape(t, db), shape(t, fresh))

	nowhere := db.Config.Copy()
	nowhere.RuntimeParams["search_path"] = "no_such_schema"
	wantErr(t, migrations.Up(t.Context(), nowhere, migrations.Options{}), "search_path", "schema.table")
}

// Everything works for names that must be quoted, and lands in the table's schema, which is made when it is missing.
func TestOddNamesInAnotherSchema(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		db := testdb.On(t, server)
		odd := db.Schema + `-It's "odd" \ $1`
		quoted := pgx.Identifier{odd}.Sanitize()
		t.Cleanup(func() { dropSchema(t, db, quoted) })
		table := quoted + `."Select.ünïcode's jobs"`
		o := migrations.Options{Table: table}
		for range 2 {
			if err := migrations.Up(t.Context(), db.Config, o); err != nil {
				t.Fatal(err)
			}
		}
		if err := migrations.Check(t.Context(), db.Pool, table); err != nil {
			t.Errorf("check: %v", err)
		}
		db.Exec(t, `INSERT INTO `+table+` (kind, key, payload, status) VALUES ('k', 'a', '1', 'dead')`)
		if got := testdb.One[string](t, db, `SELECT key FROM `+quoted+`.relay_closed_keys`); got != "a" {
			t.Errorf("closed key: got %q, want a", got)
		}
		db.Exec(t, `SELECT `+quoted+`.relay_notify(), `+quoted+`.relay_key_lock('k'), `+quoted+`.relay_owns('k', 'k', 1)`)
		if got := testdb.One[int](t, db, `SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace`, db.Schema); got != 0 {
			t.Errorf("relations in the connection's own schema: got %d, want 0", got)
		}
		var out bytes.Buffer
		if err := migrations.SQL(t.Context(), db.Config, migrations.Options{Table: strings.Replace(table, "jobs", "more", 1)}, &out); err == nil ||
			!strings.Contains(err.Error(), "schema of its own") {
			t.Errorf("a second table in one schema: got %v, want a refusal", err)
		}
		for range 6 {
			if err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: table, DropData: true}); err != nil {
				t.Fatalf("down: %v", err)
			}
		}
		if got := testdb.One[int](t, db, `SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace`, quoted); got != 0 {
			t.Errorf("relations left after all steps down: got %d, want 0", got)
		}
	})
}

func dropSchema(t *testing.T, db *testdb.DB, quoted string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if _, err := db.Pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+quoted+` CASCADE`); err != nil {
		t.Errorf("drop schema %s: %v", quoted, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    migrations.Options
		want string
	}{
		{migrations.Options{FillFactor: 9}, "10 to 100"},
		{migrations.Options{FillFactor: 101}, "10 to 100"},
		{migrations.Options{FillFactor: -1}, "10 to 100"},
		{migrations.Options{Table: "a.b.c"}, "schema.table"},
		{migrations.Options{Table: "a."}, "empty"},
		{migrations.Options{Table: `"a`}, "quote"},
		{migrations.Options{Table: `"a"b`}, "quote"},
		{migrations.Options{Table: "a\nb"}, "control"},
		{migrations.Options{Table: strings.Repeat("x", 51)}, "50"},
		{migrations.Options{Table: strings.Repeat("x", 64) + ".jobs"}, "63"},
	} {
		t.Run(c.want, func(t *testing.T) {
			wantErr(t, migrations.Up(t.Context(), &pgx.ConnConfig{}, c.o), c.want)
		})
	}
}

func TestFillFactor(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	fill := func() []string {
		return testdb.Column[string](t, db, `SELECT o FROM pg_class, unnest(reloptions) o WHERE oid = 'jobs'::regclass AND o LIKE 'fillfactor%'`)
	}
	for _, step := range []struct {
		set  int
		want string
	}{{0, "30"}, {50, "50"}, {0, "50"}, {100, "100"}} {
		db.Migrate(t, migrations.Options{FillFactor: step.set})
		if got := fill(); !slices.Equal(got, []string{"fillfactor=" + step.want}) {
			t.Errorf("after FillFactor %d: got %v, want fillfactor=%s", step.set, got, step.want)
		}
	}
}

// An owner's own storage settings stay, and survive a step down.
func TestStorageOfTheOwnerStays(t *testing.T) {
	t.Parallel()
	db := testdb.Legacy(t, 4)
	db.Exec(t, `ALTER TABLE jobs SET (fillfactor = 70, autovacuum_vacuum_threshold = 123)`)
	options := `SELECT coalesce(array_to_string(ARRAY(SELECT unnest(reloptions) ORDER BY 1), ','), '') FROM pg_class WHERE oid = 'jobs'::regclass`
	before := testdb.One[string](t, db, options)
	db.Migrate(t, migrations.Options{})
	got := testdb.One[string](t, db, options)
	for _, want := range strings.Split(before, ",") {
		if !strings.Contains(got, want) {
			t.Errorf("storage %q lacks %q", got, want)
		}
	}
	downTo(t, db, 4)
	if got := testdb.One[string](t, db, options); got != before {
		t.Errorf("storage after the step down: got %q, want %q", got, before)
	}
}

func TestWithoutOrder(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	has := func() bool { return testdb.One[bool](t, db, `SELECT to_regclass('jobs_order_idx') IS NOT NULL`) }
	db.Migrate(t, migrations.Options{WithoutOrder: true})
	if has() {
		t.Error("the order index is there")
	}
	db.Migrate(t, migrations.Options{WithoutOrder: false})
	if !has() {
		t.Error("a later up hasn't built the order index")
	}
	db.Migrate(t, migrations.Options{WithoutOrder: true})
	if !has() {
		t.Error("an up without it has dropped the order index")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	o := migrations.Options{Table: db.Table}
	pending := func() (n int) {
		steps, err := migrations.Status(t.Context(), db.Config, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			if s.Version != int64(i+1) || s.Name == "" {
				t.Errorf("step %d is %+v", i+1, s)
			}
			if s.AppliedAt.IsZero() {
				n++
			} else if time.Since(s.AppliedAt).Abs() > time.Hour {
				t.Errorf("step %d applied at %s", s.Version, s.AppliedAt)
			}
		}
		return n
	}
	if got := pending(); got != 6 {
		t.Errorf("pending before: got %d, want 6", got)
	}
	if got := testdb.One[int](t, db, `SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace`, db.Schema); got != 0 {
		t.Errorf("status made %d relations", got)
	}
	db.Migrate(t, migrations.Options{})
	if got := pending(); got != 0 {
		t.Errorf("pending after: got %d, want 0", got)
	}
	downTo(t, db, 4)
	if got := pending(); got != 2 {
		t.Errorf("pending after two steps down: got %d, want 2", got)
	}
}

// downTo steps down until the given version is the newest.
func downTo(t *testing.T, db *testdb.DB, version int) {
	t.Helper()
	for v := 6; v > version; v-- {
		if err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: db.Table}); err != nil {
			t.Fatalf("down from %d: %v", v, err)
		}
	}
}
