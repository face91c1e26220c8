package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// acceptable refuses, by name and with the rule, a table that the relay couldn't work with, and names of indexes that mean
// something else. It only reads, one look after the other: a later one would fail on what an earlier one finds.
func (m *migrator) acceptable(ctx context.Context) error {
	if m.exists && m.version() < 3 {
		return m.refuseBy(ctx, ErrNotAdoptable, m.relationProblems, m.columnProblems, m.indexProblems, m.rowProblems)
	}
	return m.refuseBy(ctx, ErrNameTaken, m.indexProblems)
}

func (m *migrator) refuseBy(ctx context.Context, as error, looks ...func(context.Context) ([]string, error)) error {
	for _, look := range looks {
		problems, err := look(ctx)
		if err != nil {
			return err
		}
		if len(problems) > 0 {
			return fmt.Errorf("table %s: %w, nothing was changed: %s", m.names, as, strings.Join(problems, "; "))
		}
	}
	return nil
}

// relationProblems: what must be an ordinary table with an id.
func (m *migrator) relationProblems(ctx context.Context) ([]string, error) {
	var kind, persistence string
	var partition, inherited, unique bool
	err := m.db.QueryRowContext(ctx, query("relation"), m.quoted()).Scan(&kind, &persistence, &partition, &inherited, &unique)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", m.names, err)
	}
	var p []string
	switch {
	case kind == "p" || partition || inherited:
		p = append(p, "it is partitioned or inherited, must be one ordinary table")
	case kind != "r":
		p = append(p, "it is no table")
	case persistence == "u":
		p = append(p, "it is unlogged and would be emptied by a crash: ALTER TABLE … SET LOGGED")
	}
	if _, ok := m.column("id"); ok && kind == "r" && !unique {
		p = append(p, "column id has no primary key or unique index of its own")
	}
	return p, nil
}

// columnProblems: every column that the relay uses has the type that it needs, and no other column is in an INSERT's way.
func (m *migrator) columnProblems(context.Context) ([]string, error) {
	var p []string
	for _, want := range legacyColumns {
		has, ok := m.column(want.Name)
		if !ok {
			p = append(p, fmt.Sprintf("column %s is missing, must be %s", want.Name, want.types[0]))
			continue
		}
		p = append(p, want.problems(has)...)
	}
	if id, ok := m.column("id"); ok && !id.hasDefault {
		p = append(p, "column id must be an identity or have a sequence as its default")
	}
	for _, want := range addedColumns {
		has, ok := m.column(want.Name)
		switch {
		case ok && want.ours:
			p = append(p, fmt.Sprintf("column %s exists already, its name is needed for the relay's own", want.Name))
		case ok:
			p = append(p, want.problems(has)...)
		}
	}
	known := append(columnNames(legacyColumns), columnNames(addedColumns)...)
	for _, has := range m.columns {
		if has.notNull && !has.hasDefault && !slices.Contains(known, has.name) {
			p = append(p, fmt.Sprintf("column %s is NOT NULL without a default, an enqueue wouldn't know what to put in: give it a default", has.name))
		}
	}
	return p, nil
}

func (want column) problems(has foundColumn) []string {
	var p []string
	if !slices.Contains(want.types, has.typ) {
		p = append(p, fmt.Sprintf("column %s is %s, must be %s", has.name, has.typ, strings.Join(want.types, " or ")))
	}
	if !has.deterministic {
		p = append(p, fmt.Sprintf("column %s has the collation %s, for which texts of different bytes are equal: must be a deterministic one", has.name, has.collation))
	}
	if want.notNull && !has.notNull {
		p = append(p, fmt.Sprintf("column %s allows NULL, must be NOT NULL", has.name))
	}
	return p
}

// rowProblems counts the rows that would break a check, in one pass over the table.
func (m *migrator) rowProblems(ctx context.Context) ([]string, error) {
	rules := checks
	if _, ok := m.column("finished_at"); ok {
		rules = append(slices.Clone(checks), check{"", "finished_at IS NULL OR status IN ('done', 'dead')", "finished_at must be NULL unless status is done or dead"})
	}
	var fields []string
	for _, c := range rules {
		fields = append(fields, fmt.Sprintf("count(*) FILTER (WHERE NOT (%s)), min(id) FILTER (WHERE NOT (%s))", c.Expr, c.Expr))
	}
	var absent string
	for _, c := range missing(m.columnNames()) {
		absent += fmt.Sprintf(", NULL::%s AS %s", c.types[0], c.Name)
	}
	counts, firsts := make([]int64, len(rules)), make([]sql.NullInt64, len(rules))
	var into []any
	for i := range rules {
		into = append(into, &counts[i], &firsts[i])
	}
	text := fmt.Sprintf("SELECT %s FROM (SELECT *%s FROM %s) jobs", strings.Join(fields, ", "), absent, m.quoted())
	if err := m.db.QueryRowContext(ctx, text).Scan(into...); err != nil {
		return nil, fmt.Errorf("count the rows of %s that would break a check: %w", m.names, err)
	}
	var p []string
	for i, c := range rules {
		if counts[i] > 0 {
			p = append(p, fmt.Sprintf("%d rows break the rule that %s (the first has id %d)", counts[i], c.Says, firsts[i].Int64))
		}
	}
	return p, nil
}

// rehearse walks one row through a job's life in a transaction that is rolled back. It finds what no list of rules can:
// a status check without dead, a constraint over several columns, a trigger that objects. It costs one id.
func (m *migrator) rehearse(ctx context.Context) ([]string, error) {
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	var id int64
	err = tx.QueryRowContext(ctx, `INSERT INTO `+m.quoted()+` (kind, payload) VALUES ('relay.rehearsal', '{}') RETURNING id`).Scan(&id)
	if err != nil {
		return rehearsed("an insert of (kind, payload)", err)
	}
	for _, as := range []struct{ what, set string }{
		{"a claim", `status = 'running', attempts = 1, leased_until = now() + interval '1 minute'`},
		{"a retry", `status = 'ready', leased_until = NULL, run_at = now() + interval '1 minute', last_error = 'rehearsal'`},
		{"settling as done", `status = 'done', leased_until = NULL, last_error = NULL`},
		{"settling as dead", `status = 'dead', leased_until = NULL, last_error = 'rehearsal'`},
		{"a requeue", `status = 'ready', attempts = 0, run_at = now()`},
	} {
		if _, err := tx.ExecContext(ctx, `UPDATE `+m.quoted()+` SET `+as.set+` WHERE id = $1`, id); err != nil {
			return rehearsed(as.what, err)
		}
	}
	return nil, nil
}

// rehearsed tells what Postgres refuses from what only failed this time.
func rehearsed(what string, err error) ([]string, error) {
	if held(err) || sqlState(err) == "" {
		return nil, fmt.Errorf("rehearse %s: %w", what, err)
	}
	return []string{fmt.Sprintf("%s is refused: %v", what, err)}, nil
}
