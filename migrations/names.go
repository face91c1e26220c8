package migrations

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/sqlname"
)

// maxName is what Postgres keeps of a name (63 bytes) less the longest ending that is put behind a table's name
// ("_finished_idx"): a longer table name would have its indexes' names cut, and made the same.
const maxName = 63 - len("_finished_idx")

// names is a table as the caller names it; schema is empty when the search_path decides.
type names struct{ schema, table string }

// parseTable reads a table's name by the rules of [sqlname.Parse], and as long as its indexes' names allow.
func parseTable(s string) (names, error) {
	at, err := sqlname.Parse(s)
	if err != nil {
		return names{}, err
	}
	n := names{schema: at.Schema, table: at.Name}
	if strings.Contains(n.schema+n.table, "$relay$") {
		return names{}, fmt.Errorf("table %q: a name must not hold $relay$", s)
	}
	if len(n.table) > maxName {
		return names{}, fmt.Errorf("table %q: a name of %d bytes, at most %d leave room for the names of its indexes", s, len(n.table), maxName)
	}
	if len(n.schema) > 63 {
		return names{}, fmt.Errorf("table %q: a schema name of %d bytes, at most 63 are kept by Postgres", s, len(n.schema))
	}
	return n, nil
}

func (n names) quoted() string {
	if n.schema == "" {
		return quote(n.table)
	}
	return n.in(n.table)
}

func (n names) String() string {
	if n.schema == "" {
		return n.table
	}
	return n.schema + "." + n.table
}

// in qualifies a name that lives beside the table.
func (n names) in(name string) string { return pgx.Identifier{n.schema, name}.Sanitize() }

func (n names) index(name string) string { return sqlname.Table{Name: n.table}.Index(name) }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal writes a string constant that reads the same whatever standard_conforming_strings says.
func literal(s string) string {
	q := strings.ReplaceAll(s, "'", "''")
	if strings.Contains(q, `\`) {
		return `E'` + strings.ReplaceAll(q, `\`, `\\`) + `'`
	}
	return `'` + q + `'`
}
