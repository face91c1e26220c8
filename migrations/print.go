package migrations

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SQL writes what Up would run on the database as it is, for psql or for reading, and runs nothing. What Up adds to it:
// it tries again when others hold the table, takes the advisory lock, and first walks one row through a job's life in a
// transaction that it rolls back. A table that can't be adopted for a reason that can be read is an error here too.
func SQL(ctx context.Context, db *pgx.ConnConfig, o Options, w io.Writer) error {
	parts, err := plan(ctx, db, o)
	if err != nil {
		return fmt.Errorf("migrate sql: %w", err)
	}
	for _, p := range parts {
		if _, err := fmt.Fprintf(w, "-- %s\n%s\n\n", p.title, p.text()); err != nil {
			return fmt.Errorf("migrate sql: %w", err)
		}
	}
	return nil
}

// part is some statements that belong together.
type part struct {
	title       string
	statements  []string
	transaction bool
}

func (p part) text() string {
	all := strings.Join(p.statements, "\n")
	if p.transaction {
		return "BEGIN;\n" + all + "\nCOMMIT;"
	}
	return all
}

func plan(ctx context.Context, db *pgx.ConnConfig, o Options) ([]part, error) {
	n, err := o.parse()
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, db, o.Log)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if n, err = resolve(ctx, s.db, n); err != nil {
		return nil, err
	}
	m := &migrator{session: s, options: o}
	if m.state, err = inspect(ctx, s.db, n); err != nil {
		return nil, err
	}
	if err := m.tooNew(); err != nil || m.version() > latest {
		return nil, err
	}
	if err := m.acceptable(ctx); err != nil {
		return nil, err
	}
	return m.plan(ctx)
}

// plan puts the pending steps in order, each with the statement that records it.
func (m *migrator) plan(ctx context.Context) ([]part, error) {
	v := m.view(m.options)
	book := newStore(m.state, v)
	parts := []part{{title: "settings", statements: []string{"SET lock_timeout = '100ms';", "SET statement_timeout = 0;"}}}
	if m.applied == nil {
		first := part{title: "bookkeeping", transaction: true}
		if !m.schemaExists {
			first.statements = append(first.statements, "CREATE SCHEMA IF NOT EXISTS "+quote(m.schema)+";")
		}
		record, err := book.insert(0)
		if err != nil {
			return nil, err
		}
		create, err := book.create()
		if err != nil {
			return nil, err
		}
		first.statements = append(first.statements, create+record+";")
		parts = append(parts, first)
	}
	for _, version := range stepVersions() {
		if version <= m.version() {
			continue
		}
		p, err := m.step(ctx, v, version)
		if err != nil {
			return nil, err
		}
		record, err := book.insert(version)
		if err != nil {
			return nil, err
		}
		p.statements = append(p.statements, record+";")
		parts = append(parts, p)
	}
	if m.version() >= indexStep {
		return m.appendIndexes(ctx, parts, v, "indexes that are missing", m.wanted()...)
	}
	if m.options.WithoutOrder {
		return parts, nil
	}
	return m.appendIndexes(ctx, parts, v, "the index of per-key order", orderIndex)
}

func (m *migrator) step(ctx context.Context, v view, version int64) (part, error) {
	title := fmt.Sprintf("step %d: %s", version, stepNames[version])
	if version == indexStep {
		return m.indexPart(ctx, v, title, indexes...)
	}
	text, err := v.render(fmt.Sprintf("sql/%05d_%s.sql", version, stepNames[version]))
	if err != nil {
		return part{}, err
	}
	return part{title: title, statements: []string{upSection(text)}, transaction: !strings.Contains(text, "+goose NO TRANSACTION")}, nil
}

func (m *migrator) appendIndexes(ctx context.Context, parts []part, v view, title string, which ...string) ([]part, error) {
	p, err := m.indexPart(ctx, v, title, which...)
	return append(parts, p), err
}

func (m *migrator) indexPart(ctx context.Context, v view, title string, which ...string) (part, error) {
	p := part{title: title, statements: []string{"SET lock_timeout = 0;"}}
	for _, name := range which {
		f, err := m.findIndex(ctx, name)
		if err != nil {
			return p, err
		}
		if f.valid {
			continue
		}
		if f.ours {
			p.statements = append(p.statements, "DROP INDEX CONCURRENTLY IF EXISTS "+m.in(v.index(name))+";")
		}
		text, err := v.render("sql/indexes/" + name + ".sql")
		if err != nil {
			return p, err
		}
		p.statements = append(p.statements, strings.TrimSpace(text))
	}
	return p, nil
}

// upSection is the part of a step's file that goes up, without goose's annotations.
func upSection(text string) string {
	var out []string
	up := false
	for line := range strings.Lines(text) {
		note, annotated := strings.CutPrefix(strings.TrimSpace(line), "-- +goose ")
		switch {
		case annotated && note == "Up":
			up = true
		case annotated && note == "Down":
			up = false
		case up && !annotated:
			out = append(out, strings.TrimRight(line, "\n"))
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}
