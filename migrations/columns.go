package migrations

import "slices"

// column is one column of the table: the types it may have in a table that is adopted (the first one is ours), and what
// ADD COLUMN says.
type column struct {
	Name       string
	types      []string
	notNull    bool
	Definition string
	// ours marks columns whose meaning is the relay's alone: a column of that name that somebody else made is refused.
	ours bool
}

// legacyColumns are the nine of the well-known design; an adopted table must have them all.
var legacyColumns = []column{
	{Name: "id", types: []string{"bigint"}, notNull: true},
	{Name: "kind", types: []string{"text"}, notNull: true},
	{Name: "payload", types: []string{"jsonb"}},
	{Name: "status", types: []string{"text"}, notNull: true},
	{Name: "run_at", types: []string{"timestamp with time zone"}, notNull: true},
	{Name: "attempts", types: []string{"integer", "bigint"}, notNull: true},
	{Name: "max_attempts", types: []string{"integer", "bigint"}, notNull: true},
	{Name: "leased_until", types: []string{"timestamp with time zone"}},
	{Name: "last_error", types: []string{"text"}},
}

// addedColumns are the rest, in the order in which they are added.
var addedColumns = []column{
	{Name: "key", types: []string{"text"}, Definition: "text"},
	{Name: "headers", types: []string{"jsonb"}, Definition: "jsonb"},
	{Name: "body", types: []string{"bytea"}, Definition: "bytea"},
	{Name: "priority", types: []string{"smallint"}, notNull: true, Definition: "smallint NOT NULL DEFAULT 0"},
	{Name: "lease_token", types: []string{"bigint"}, Definition: "bigint", ours: true},
	{Name: "alone", types: []string{"boolean"}, notNull: true, Definition: "boolean NOT NULL DEFAULT false", ours: true},
	{Name: "delivered", types: []string{"text[]"}, Definition: "text[]", ours: true},
	{Name: "replay_of", types: []string{"bigint"}, Definition: "bigint", ours: true},
	{Name: "created_at", types: []string{"timestamp with time zone"}, Definition: "timestamptz"},
	{Name: "finished_at", types: []string{"timestamp with time zone"}, Definition: "timestamptz"},
}

// check is a constraint of the table. Expr may use any column, also those that an adopted table doesn't have yet; Says is
// the rule in words, for a refusal.
type check struct{ Name, Expr, Says string }

var checks = []check{
	{"relay_status", "status IN ('ready', 'running', 'done', 'dead')", "status must be ready, running, done or dead"},
	{"relay_content", "(payload IS NULL) <> (body IS NULL)", "exactly one of payload and body must be set"},
	{"relay_kind", "octet_length(kind) BETWEEN 1 AND 255", "kind must have 1 to 255 bytes"},
	{"relay_key", "octet_length(key) <= 1024", "key must have at most 1024 bytes"},
	{"relay_headers", "jsonb_typeof(headers) = 'object'", "headers must be a JSON object"},
}

// storage is what the table is set to. Thresholds in rows: the table's size says nothing about how much of it is dead.
var storage = []setting{
	{"fillfactor", "30"},
	{"autovacuum_vacuum_scale_factor", "0"},
	{"autovacuum_vacuum_threshold", "10000"},
	{"autovacuum_vacuum_insert_scale_factor", "0"},
	{"autovacuum_vacuum_insert_threshold", "100000"},
	{"autovacuum_analyze_scale_factor", "0"},
	{"autovacuum_analyze_threshold", "10000"},
	{"autovacuum_vacuum_cost_delay", "0"},
}

type setting struct{ Name, Value string }

// indexes are built in this order; optional ones may be left out.
var indexes = []string{"pending", "finished", "dead"}

const orderIndex = "order"

func columnNames(cs []column) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Name)
	}
	return out
}

// missing are the columns to add to a table that has these.
func missing(has []string) []column {
	return slices.DeleteFunc(slices.Clone(addedColumns), func(c column) bool { return slices.Contains(has, c.Name) })
}
