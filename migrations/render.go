package migrations

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
	"text/template"
)

// The steps (sql/NNNNN_name.sql, goose's format), the indexes, and what is asked of the catalog. Steps and indexes are
// templates: the table's name and schema are the user's choice, and what a table needs depends on what it has.
//
//go:embed sql
var files embed.FS

// indexStep builds the indexes: the one step in Go, since an interrupted build must be dropped before it is built again.
// It is the last of the first release's steps.
const indexStep = 6

// latest is the newest step that this version knows; supported is the oldest such number among the versions of the relay
// that work with this schema.
const (
	latest    = indexStep
	supported = indexStep
)

// stepNames are all steps by version, from the names of the files.
var stepNames = func() map[int64]string {
	m := map[int64]string{indexStep: "indexes"}
	for _, f := range stepFiles() {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(f), ".sql"), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("migrations: file %s has no number", f))
		}
		m[v] = name
	}
	return m
}()

func stepFiles() []string {
	found, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return found
}

func stepVersions() []int64 {
	var vs []int64
	for v := range stepNames {
		vs = append(vs, v)
	}
	slices.Sort(vs)
	return vs
}

// query is the text of one file of sql/queries.
func query(name string) string {
	b, err := files.ReadFile("sql/queries/" + name + ".sql")
	if err != nil {
		panic(err) // embedded; every name is a constant
	}
	return string(b)
}

// view is what the templates see.
type view struct {
	names
	Exists          bool     // the table is there already
	Adopted         bool     // it was there before the first step
	Columns         []column // to add
	Checks          []check
	Added           []string  // to drop on the way down
	PayloadNullable bool      // how the way down leaves payload
	LossTest        string    // true for a row whose added columns hold something
	NewStorage      []setting // to set
	OwnStorage      []setting // to reset on the way down
	DropData        bool
	collations      map[string]string // COLLATE and the collation of columns that have another than the database's
	Concurrently    string            // CONCURRENTLY and what belongs to it, or nothing on a table without rows
}

func (v view) Table() string            { return v.quoted() }
func (v view) In(name string) string    { return v.in(name) }
func (v view) Index(name string) string { return quote(v.index(name)) }
func (v view) Channel() string          { return literal(v.table + "_ready") }

// Collation is what the definition of a column beside the table says that is compared with one of the table: under
// another collation no index would serve the comparison.
func (v view) Collation(column string) string { return v.collations[column] }

func (v view) Lock(purpose string) string { return literal("relay " + purpose + " " + v.String()) }

// view prepares the templates' data from what was found.
func (s state) view(o Options) view {
	three := s.detailOf(3)
	v := view{
		names: s.names, Exists: s.exists, Checks: checks, DropData: o.DropData,
		Adopted: s.detailOf(1).Adopted, Columns: missing(s.columnNames()),
		Added: three.Added, PayloadNullable: three.PayloadNullable, LossTest: lossTest(three.Added),
	}
	v.collations = map[string]string{}
	for _, c := range s.columns {
		if c.collation != "" {
			v.collations[c.name] = " COLLATE " + c.collation
		}
	}
	for _, want := range storage {
		if want.Name == "fillfactor" && o.FillFactor != 0 {
			want.Value = strconv.Itoa(o.FillFactor)
		} else if slices.ContainsFunc(s.storage, func(has setting) bool { return has.Name == want.Name }) {
			continue
		}
		v.NewStorage = append(v.NewStorage, want)
	}
	for _, name := range s.detailOf(5).Storage {
		v.OwnStorage = append(v.OwnStorage, setting{Name: name})
	}
	if s.exists {
		v.Concurrently = "CONCURRENTLY IF NOT EXISTS "
	} else {
		v.Concurrently = "IF NOT EXISTS "
	}
	return v
}

// lossTest is true for a row in which an application put something into a column that goes away. Times, tokens and
// leases are the relay's own and no loss.
func lossTest(added []string) string {
	var tests []string
	for _, c := range []string{"key", "headers", "body", "delivered", "replay_of"} {
		if slices.Contains(added, c) {
			tests = append(tests, c+" IS NOT NULL")
		}
	}
	if slices.Contains(added, "priority") {
		tests = append(tests, "priority <> 0")
	}
	return strings.Join(tests, " OR ")
}

// render fills one file of sql.
func (v view) render(file string) (string, error) {
	b, err := files.ReadFile(file)
	if err != nil {
		return "", err
	}
	t, err := template.New(file).Option("missingkey=error").Parse(string(b))
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", file, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		return "", fmt.Errorf("render %s: %w", file, err)
	}
	return out.String(), nil
}

// steps renders all steps for goose.
func (v view) steps() (fs.FS, error) {
	out := fstest.MapFS{}
	for _, f := range stepFiles() {
		text, err := v.render(f)
		if err != nil {
			return nil, err
		}
		out[path.Base(f)] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
	return out, nil
}
