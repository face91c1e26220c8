package migrations

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

// bookkeepingTable holds a row for each step that was applied. goose's own table has no room for what a step down needs
// to know, nor for the versions that a schema supports.
const bookkeepingTable = "relay_migrations"

// store is goose's view of the bookkeeping.
type store struct {
	names
	details map[int64]detail // what each step remembers when it is applied
}

var _ database.StoreExtender = store{}

// newStore prepares what each step remembers, from the state before the first of them.
func newStore(s state, v view) store {
	payload, ok := s.column("payload")
	five := detail{}
	for _, o := range v.NewStorage {
		five.Storage = append(five.Storage, o.Name)
	}
	return store{s.names, map[int64]detail{
		0: {Table: s.table},
		1: {Adopted: s.exists},
		3: {Added: columnNames(v.Columns), PayloadNullable: ok && !payload.notNull},
		5: five,
	}}
}

func (s store) Tablename() string { return s.in(bookkeepingTable) }

func (s store) create() (string, error) {
	return view{names: s.names}.render("sql/queries/bookkeeping.sql")
}

func (s store) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	text, err := s.create()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, text)
	return err
}

// insert is the statement that records a step.
func (s store) insert(version int64) (string, error) {
	d, err := json.Marshal(s.details[version])
	if err != nil {
		return "", err
	}
	name := stepNames[version]
	if version == 0 {
		name = "bookkeeping"
	}
	return fmt.Sprintf(`INSERT INTO %s (version, name, supports, detail) VALUES (%d, %s, %d, %s)`,
		s.Tablename(), version, literal(name), supported, literal(string(d))), nil
}

func (s store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	text, err := s.insert(req.Version)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, text)
	return err
}

func (s store) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	_, err := db.ExecContext(ctx, `DELETE FROM `+s.Tablename()+` WHERE version = $1`, version)
	return err
}

func (s store) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	r := database.GetMigrationResult{IsApplied: true}
	err := db.QueryRowContext(ctx, `SELECT applied_at FROM `+s.Tablename()+` WHERE version = $1`, version).Scan(&r.Timestamp)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: %d", database.ErrVersionNotFound, version)
	}
	return &r, err
}

func (s store) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	var v sql.NullInt64
	if err := db.QueryRowContext(ctx, `SELECT max(version) FROM `+s.Tablename()).Scan(&v); err != nil {
		return 0, err
	}
	if !v.Valid {
		return 0, database.ErrVersionNotFound
	}
	return v.Int64, nil
}

func (s store) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	rows, err := db.QueryContext(ctx, `SELECT version FROM `+s.Tablename()+` ORDER BY version DESC`)
	if err != nil {
		return nil, err
	}
	var out []*database.ListMigrationsResult
	err = each(rows, func() error {
		m := database.ListMigrationsResult{IsApplied: true}
		err := rows.Scan(&m.Version)
		out = append(out, &m)
		return err
	})
	return out, err
}

func (s store) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var ok bool
	err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.Tablename()).Scan(&ok)
	return ok, err
}
