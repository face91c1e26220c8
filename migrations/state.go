package migrations

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// state is what the database holds of the table and its schema, read before anything is done.
type state struct {
	names
	schemaExists bool
	exists       bool // the table
	columns      []foundColumn
	storage      []setting // what the table is set to now
	applied      []record  // oldest first; nil when there is no bookkeeping
}

// record is one row of the bookkeeping.
type record struct {
	version  int64
	supports int64
	detail   detail
	at       time.Time
}

// detail is what a step must remember to be undone.
type detail struct {
	Table           string   `json:"table,omitempty"`            // step 0: whose schema this is
	Adopted         bool     `json:"adopted,omitempty"`          // step 1: the table was there before
	Added           []string `json:"added,omitempty"`            // step 3: columns
	PayloadNullable bool     `json:"payload_nullable,omitempty"` // step 3: as it was before
	Storage         []string `json:"storage,omitempty"`          // step 5: settings
}

type foundColumn struct {
	name, typ           string
	notNull, hasDefault bool
	collation           string // quoted and qualified; "" the database's
	deterministic       bool   // equal texts are the same bytes
}

// queryer is *sql.DB, *sql.Conn or *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// resolve completes a name without a schema the way an INSERT would: the table that the search_path finds, else where
// CREATE TABLE would put it.
func resolve(ctx context.Context, q queryer, n names) (names, error) {
	if n.schema != "" {
		return n, nil
	}
	var schema sql.NullString
	if err := q.QueryRowContext(ctx, query("resolve"), n.quoted()).Scan(&schema); err != nil {
		return n, fmt.Errorf("find table %s: %w", n, err)
	}
	if !schema.Valid {
		return n, fmt.Errorf("find table %s: no schema of the search_path exists; name one, as in schema.table", n)
	}
	n.schema = schema.String
	return n, nil
}

// inspect reads the state; n has its schema.
func inspect(ctx context.Context, q queryer, n names) (state, error) {
	s := state{names: n}
	var bookkeeping bool
	row := q.QueryRowContext(ctx, query("exists"), n.schema, n.quoted(), n.in(bookkeepingTable))
	if err := row.Scan(&s.schemaExists, &s.exists, &bookkeeping); err != nil {
		return s, fmt.Errorf("inspect %s: %w", n, err)
	}
	if bookkeeping {
		if err := s.readApplied(ctx, q); err != nil {
			return s, fmt.Errorf("inspect %s: read %s: %w", n, bookkeepingTable, err)
		}
	}
	if s.exists {
		if err := errors.Join(s.readColumns(ctx, q), s.readStorage(ctx, q)); err != nil {
			return s, fmt.Errorf("inspect %s: %w", n, err)
		}
	}
	return s, s.belongs()
}

// belongs refuses a schema that holds the helpers of another table: they can serve one only.
func (s state) belongs() error {
	for _, r := range s.applied {
		if r.version == 0 && r.detail.Table != "" && r.detail.Table != s.table {
			return fmt.Errorf("table %s: schema %s already serves table %s; put the other one in a schema of its own", s.names, s.schema, r.detail.Table)
		}
	}
	return nil
}

func (s *state) readApplied(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, `SELECT version, supports, detail, applied_at FROM `+s.in(bookkeepingTable)+` ORDER BY version`)
	if err != nil {
		return err
	}
	return each(rows, func() error {
		var r record
		var d []byte
		if err := rows.Scan(&r.version, &r.supports, &d, &r.at); err != nil {
			return err
		}
		s.applied = append(s.applied, r)
		return json.Unmarshal(d, &s.applied[len(s.applied)-1].detail)
	})
}

func (s *state) readColumns(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, query("columns"), s.quoted())
	if err != nil {
		return err
	}
	return each(rows, func() error {
		var c foundColumn
		if err := rows.Scan(&c.name, &c.typ, &c.notNull, &c.hasDefault, &c.collation, &c.deterministic); err != nil {
			return err
		}
		s.columns = append(s.columns, c)
		return nil
	})
}

func (s *state) readStorage(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, query("storage"), s.quoted())
	if err != nil {
		return err
	}
	return each(rows, func() error {
		var o setting
		err := rows.Scan(&o.Name, &o.Value)
		s.storage = append(s.storage, o)
		return err
	})
}

func each(rows *sql.Rows, scan func() error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// version is the newest step applied, 0 for none.
func (s state) version() int64 {
	if len(s.applied) == 0 {
		return 0
	}
	return s.applied[len(s.applied)-1].version
}

// detail is what the given step remembered.
func (s state) detailOf(version int64) detail {
	for _, r := range s.applied {
		if r.version == version {
			return r.detail
		}
	}
	return detail{}
}

func (s state) column(name string) (foundColumn, bool) {
	i := slices.IndexFunc(s.columns, func(c foundColumn) bool { return c.name == name })
	if i < 0 {
		return foundColumn{}, false
	}
	return s.columns[i], true
}

func (s state) columnNames() []string {
	var out []string
	for _, c := range s.columns {
		out = append(out, c.name)
	}
	return out
}

// tooNew reports a schema from a newer version that doesn't support this one.
func tooNew(n names, newest, supports int64) error {
	if newest <= latest || supports <= latest {
		return nil
	}
	return fmt.Errorf("%w: %s is at version %d and needs a relay that knows version %d, this one knows %d: deploy the newer relay",
		ErrTooNew, n, newest, supports, latest)
}

func (s state) tooNew() error {
	var supports int64
	for _, r := range s.applied {
		if r.version > latest {
			supports = max(supports, r.supports)
		}
	}
	return tooNew(s.names, s.version(), supports)
}
