package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// What is printed can be run, statement by statement as psql does it, and ends where Up ends.
func TestSQLDoesWhatUpDoes(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]*testdb.DB{"empty": testdb.Empty(t), "legacy": testdb.Legacy(t, 4_000)} {
		t.Run(name, func(t *testing.T) {
			before := shape(t, db)
			text := printed(t, db)
			if !strings.Contains(text, "CREATE TABLE") {
				t.Errorf("no CREATE TABLE in what is printed")
			}
			sameShape(t, shape(t, db), before)
			run(t, db, text)
			if err := migrations.Check(t.Context(), db.Pool, db.Table); err != nil {
				t.Errorf("check: %v", err)
			}
			fresh := testdb.New(t)
			sameShape(t, without(shape(t, db), "jobs_status_check", "_ready_idx", "_running_idx"), shape(t, fresh))
			got := shape(t, db)
			db.Migrate(t, migrations.Options{})
			sameShape(t, shape(t, db), got)
			if after := printed(t, db); strings.Contains(after, "CREATE") || strings.Contains(after, "INSERT") {
				t.Errorf("printed once all is done: %s", after)
			}
			wrong := `SELECT count(*) FROM jobs WHERE (status IN ('done', 'dead')) <> (finished_at IS NOT NULL)`
			if got := testdb.One[int](t, db, wrong); got != 0 {
				t.Errorf("rows whose finished_at doesn't fit: %d", got)
			}
		})
	}
}

func TestSQLLeavesOut(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	var out bytes.Buffer
	if err := migrations.SQL(t.Context(), db.Config, migrations.Options{Table: db.Table, WithoutOrder: true, FillFactor: 50}, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "_order_idx") || !strings.Contains(out.String(), "fillfactor = 50") {
		t.Errorf("printed for WithoutOrder and FillFactor 50: %s", out.String())
	}
	broken := errors.New("pipe closed")
	if err := migrations.SQL(t.Context(), db.Config, migrations.Options{Table: db.Table}, failing{broken}); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func printed(t *testing.T, db *testdb.DB) string {
	t.Helper()
	var out bytes.Buffer
	if err := migrations.SQL(t.Context(), db.Config, migrations.Options{Table: db.Table}, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// run sends the statements one by one: several at once would be one transaction, in which no index can be built
// concurrently.
func run(t *testing.T, db *testdb.DB, text string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), db.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, s := range statements(text) {
		if _, err := conn.Exec(t.Context(), s, pgx.QueryExecModeExec); err != nil {
			t.Fatalf("%s\n%v", s, err)
		}
	}
}

// statements splits as psql does: at semicolons that end a line, outside of dollar quotes.
func statements(text string) []string {
	var out []string
	var one strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprint(&one, line)
		if strings.Count(one.String(), "$relay$")%2 == 0 && strings.HasSuffix(strings.TrimSpace(line), ";") {
			out = append(out, one.String())
			one.Reset()
		}
	}
	return out
}
