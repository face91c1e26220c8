package migrations

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxName is what Postgres keeps of a name (63 bytes) less the longest ending that is put behind a table's name
// ("_finished_idx"): a longer table name would have its indexes' names cut, and made the same.
const maxName = 63 - len("_finished_idx")

// names is a table as the caller names it; schema is empty when the search_path decides.
type names struct{ schema, table string }

// parseTable reads "table" or "schema.table". The names are taken as they are: no folding to lower case. A name that holds
// a dot is written in double quotes, as in SQL.
func parseTable(s string) (names, error) {
	parts, err := splitName(s)
	if err != nil {
		return names{}, fmt.Errorf("table %q: %w", s, err)
	}
	n := names{table: parts[len(parts)-1]}
	if len(parts) == 2 {
		n.schema = parts[0]
	}
	for _, p := range parts {
		if p == "" || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(p, "$relay$") {
			return names{}, fmt.Errorf("table %q: a name must not be empty or hold control characters", s)
		}
	}
	if len(n.table) > maxName {
		return names{}, fmt.Errorf("table %q: a name of %d bytes, at most %d leave room for the names of its indexes", s, len(n.table), maxName)
	}
	if len(n.schema) > 63 {
		return names{}, fmt.Errorf("table %q: a schema name of %d bytes, at most 63 are kept by Postgres", s, len(n.schema))
	}
	return n, nil
}

// splitName splits at dots outside double quotes into one or two parts.
func splitName(s string) ([]string, error) {
	var parts []string
	for rest := s; ; {
		var part string
		if strings.HasPrefix(rest, `"`) {
			end := closingQuote(rest)
			if end < 0 {
				return nil, fmt.Errorf("a quote that doesn't end")
			}
			part, rest = strings.ReplaceAll(rest[1:end], `""`, `"`), rest[end+1:]
			if rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("text after a closing quote")
			}
		} else if i := strings.IndexByte(rest, '.'); i >= 0 {
			part, rest = rest[:i], rest[i:]
		} else {
			part, rest = rest, ""
		}
		parts = append(parts, part)
		if rest == "" {
			break
		}
		rest = rest[1:]
	}
	if len(parts) > 2 {
		return nil, fmt.Errorf("%d names, want table or schema.table", len(parts))
	}
	return parts, nil
}

// closingQuote finds the quote that ends the one s begins with; a doubled quote stands for one.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return i
	}
	return -1
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

func (n names) index(name string) string { return n.table + "_" + name + "_idx" }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal writes a string constant that reads the same whatever standard_conforming_strings says.
func literal(s string) string {
	q := strings.ReplaceAll(s, "'", "''")
	if strings.Contains(q, `\`) {
		return `E'` + strings.ReplaceAll(q, `\`, `\\`) + `'`
	}
	return `'` + q + `'`
}
