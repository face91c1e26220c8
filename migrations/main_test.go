package migrations_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEach runs a test on the usual server and, where there is one, on the oldest supported major version.
func onEach(t *testing.T, test func(t *testing.T, server string)) {
	t.Helper()
	servers := map[string]string{"new": services.Postgres(t)}
	if old := os.Getenv("RELAY_TEST_POSTGRES_OLD"); old != "" {
		servers["old"] = old
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

// shape describes everything in the schema that migrations make, one line each, sorted, with the schema's name left out.
func shape(t *testing.T, db *testdb.DB) []string {
	t.Helper()
	lines := testdb.Column[string](t, db, `
SELECT concat_ws(' ', 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
    pg_get_expr(d.adbin, d.adrelid), a.attidentity)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT concat_ws(' ', 'check', c.relname, o.conname, pg_get_constraintdef(o.oid))
FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid WHERE c.relnamespace = $1::regnamespace AND o.contype = 'c'
UNION ALL
SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), CASE WHEN NOT i.indisvalid THEN 'INVALID' END)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = $1::regnamespace
UNION ALL
SELECT 'trigger ' || pg_get_triggerdef(g.oid)
FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid WHERE c.relnamespace = $1::regnamespace AND NOT g.tgisinternal
UNION ALL
SELECT 'function ' || pg_get_functiondef(p.oid) || coalesce(' ' || p.proacl::text, '') FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'storage', c.relname, o) FROM pg_class c, unnest(c.reloptions) o WHERE c.relnamespace = $1::regnamespace`, `"`+db.Schema+`"`)
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.ReplaceAll(l, `"`+db.Schema+`"`, "S"), db.Schema, "S")
	}
	slices.Sort(lines)
	return lines
}

// sameShape compares two shapes and shows only what differs.
func sameShape(t *testing.T, got, want []string) {
	t.Helper()
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("too much: %s", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("missing: %s", l)
		}
	}
}

// without leaves out the lines that hold one of the words.
func without(lines []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(l, w) })
	})
}

func wantErr(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one that holds %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}
