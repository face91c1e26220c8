// Package sqlname reads the name of a table as the settings write it.
package sqlname

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Table is a table's name. Schema is "" when the search_path decides.
type Table struct{ Schema, Name string }

// Parse reads "table" or "schema.table". Names are taken as they are, without folding to lower case; one that holds a dot
// is written in double quotes, as in SQL, and a doubled quote in them is one. The error names the text and the rule.
func Parse(s string) (Table, error) {
	parts, err := split(s)
	if err != nil {
		return Table{}, fmt.Errorf("table %q: %w", s, err)
	}
	for _, p := range parts {
		if p == "" || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return Table{}, fmt.Errorf("table %q: a name must not be empty or hold control characters", s)
		}
	}
	switch len(parts) {
	case 1:
		return Table{Name: parts[0]}, nil
	case 2:
		return Table{Schema: parts[0], Name: parts[1]}, nil
	}
	return Table{}, fmt.Errorf("table %q: %d names, want table or schema.table", s, len(parts))
}

// split splits at dots outside double quotes.
func split(s string) (parts []string, err error) {
	for rest, more := s, true; more; {
		part, after, err := cut(rest)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		rest, more = strings.CutPrefix(after, ".")
		if !more && rest != "" {
			return nil, fmt.Errorf("text after a closing quote")
		}
	}
	return parts, nil
}

// cut takes one name off the front of s.
func cut(s string) (name, after string, err error) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexByte(s, '.')
		if i < 0 {
			i = len(s)
		}
		return s[:i], s[i:], nil
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return strings.ReplaceAll(s[1:i], `""`, `"`), s[i+1:], nil
	}
	return "", "", fmt.Errorf("a quote that doesn't end")
}

// Beside quotes the name of something that lives in the table's schema.
func (t Table) Beside(name string) string {
	if t.Schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{t.Schema, name}.Sanitize()
}

// Quoted quotes the table's own name.
func (t Table) Quoted() string { return t.Beside(t.Name) }

// Index names one of the relay's indexes of the table, which lives in its schema.
func (t Table) Index(what string) string { return t.Name + "_" + what + "_idx" }

// String gives the name as people read it.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}
