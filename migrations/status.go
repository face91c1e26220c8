package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Step is one migration.
type Step struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero: pending
}

// Status lists the steps that this version knows, in their order, and those of a newer version that were applied. It
// changes nothing and takes no lock.
func Status(ctx context.Context, db *pgx.ConnConfig, o Options) ([]Step, error) {
	s, err := look(ctx, db, o)
	if err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	var steps []Step
	for _, v := range stepVersions() {
		steps = append(steps, Step{Version: v, Name: stepNames[v]})
	}
	for _, r := range s.applied {
		switch {
		case r.version == 0:
		case r.version <= latest:
			steps[r.version-1].AppliedAt = r.at
		default:
			steps = append(steps, Step{Version: r.version, Name: "of a newer version", AppliedAt: r.at})
		}
	}
	return steps, nil
}

// look reads the state and lets go of the database. Its rollback undoes what it sets, so it works through a pooler.
func look(ctx context.Context, cfg *pgx.ConnConfig, o Options) (state, error) {
	n, err := o.parse()
	if err != nil {
		return state{}, err
	}
	db := stdlib.OpenDB(*plain(cfg))
	defer db.Close()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return state{}, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, query("session")); err != nil {
		return state{}, fmt.Errorf("set up the session: %w", err)
	}
	if n, err = resolve(ctx, tx, n); err != nil {
		return state{}, err
	}
	return inspect(ctx, tx, n)
}

// Querier is the part of pgx that Check needs: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check returns nil when a relay of this version can work with the table, named as in [Options]. Otherwise the error is
// ErrNotMigrated or ErrTooNew and says what to do, or it is what kept it from looking. A newer schema is fine when it
// says that it supports this version, so that a rollback of the relay can start.
func Check(ctx context.Context, conn Querier, table string) error {
	n, err := find(ctx, conn, table)
	if err != nil {
		return err
	}
	var hasSchema, hasTable, bookkeeping bool
	if err := conn.QueryRow(ctx, query("exists"), n.schema, n.quoted(), n.in(bookkeepingTable)).Scan(&hasSchema, &hasTable, &bookkeeping); err != nil {
		return fmt.Errorf("check the schema of %s: %w", n, err)
	}
	if !hasTable {
		return fmt.Errorf("%w: there is no table %s: run `relay migrate up`", ErrNotMigrated, n)
	}
	if !bookkeeping {
		return fmt.Errorf("%w: table %s was not made or adopted by relay: run `relay migrate up`", ErrNotMigrated, n)
	}
	return checkVersion(ctx, conn, n)
}

// CheckIndexes returns nil when the table has the indexes that every relay needs, by their names and by what they are.
// Otherwise the error is ErrNotMigrated or ErrNameTaken and says what to do, or it is what kept it from looking.
func CheckIndexes(ctx context.Context, conn Querier, table string) error {
	for _, name := range indexes {
		if err := checkIndex(ctx, conn, table, name, ErrNotMigrated, "run `relay migrate up`"); err != nil {
			return err
		}
	}
	return nil
}

// CheckOrder returns nil when the table has the index that routes with `order: key` need, which [Options].WithoutOrder
// leaves out. Otherwise the error is ErrNoOrderIndex or ErrNameTaken, or what kept it from looking.
func CheckOrder(ctx context.Context, conn Querier, table string) error {
	return checkIndex(ctx, conn, table, orderIndex, ErrNoOrderIndex, "run `relay migrate up` (without --without-order)")
}

func checkIndex(ctx context.Context, conn Querier, table, name string, missing error, remedy string) error {
	n, err := find(ctx, conn, table)
	if err != nil {
		return err
	}
	f, err := n.readIndex(conn.QueryRow(ctx, query("index"), n.in(n.index(name)), n.quoted()), name)
	switch {
	case err != nil:
		return err
	case f.exists && !f.ours:
		return fmt.Errorf("%w: %s", ErrNameTaken, n.taken(name, f))
	case !f.valid:
		return fmt.Errorf("%w: %s has no valid index %s: %s", missing, n, n.index(name), remedy)
	}
	return nil
}

// find parses the name and finds its schema.
func find(ctx context.Context, conn Querier, table string) (names, error) {
	n, err := Options{Table: table}.parse()
	if err != nil {
		return n, fmt.Errorf("check the schema: %w", err)
	}
	if n.schema != "" {
		return n, nil
	}
	var found *string
	if err := conn.QueryRow(ctx, query("resolve"), n.quoted()).Scan(&found); err != nil {
		return n, fmt.Errorf("check the schema of %s: %w", n, err)
	}
	if found == nil {
		return n, fmt.Errorf("%w: no schema of the search_path exists: create one, then run `relay migrate up`", ErrNotMigrated)
	}
	n.schema = *found
	return n, nil
}

func checkVersion(ctx context.Context, conn Querier, n names) error {
	var version, supports int64
	var owner string
	err := conn.QueryRow(ctx, `SELECT max(version), coalesce(max(supports) FILTER (WHERE version > $1), 0),
    coalesce(max(detail->>'table') FILTER (WHERE version = 0), '') FROM `+n.in(bookkeepingTable)+` HAVING count(*) > 0`, int64(latest)).
		Scan(&version, &supports, &owner)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return fmt.Errorf("check the schema of %s: %w", n, err)
	}
	if owner != "" && owner != n.table {
		return fmt.Errorf("%w: schema %s serves table %s, not %s: put the other one in a schema of its own", ErrNotMigrated, n.schema, owner, n.table)
	}
	if version < latest {
		return fmt.Errorf("%w: %s is at version %d, this relay needs %d: run `relay migrate up`", ErrNotMigrated, n, version, latest)
	}
	return tooNew(n, version, supports)
}
