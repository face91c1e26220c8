package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// buildIndexes builds those that are missing or were left half built, one after the other.
func (m *migrator) buildIndexes(ctx context.Context, v view, which ...string) error {
	conn, err := m.patientConn(ctx)
	if err != nil {
		return err
	}
	defer m.release(conn)
	for _, name := range which {
		valid, exists, err := m.findIndex(ctx, conn, v.index(name))
		if err != nil {
			return err
		}
		if valid {
			continue
		}
		if exists {
			if err := m.dropIndex(ctx, conn, v.index(name)); err != nil {
				return err
			}
		}
		text, err := v.render("sql/indexes/" + name + ".sql")
		if err != nil {
			return err
		}
		if err := m.build(ctx, conn, v.index(name), text); err != nil {
			return err
		}
	}
	return nil
}

func (m *migrator) dropIndexes(ctx context.Context, which ...string) error {
	conn, err := m.patientConn(ctx)
	if err != nil {
		return err
	}
	defer m.release(conn)
	for _, name := range which {
		_, exists, err := m.findIndex(ctx, conn, name)
		if err != nil {
			return err
		}
		if exists {
			if err := m.dropIndex(ctx, conn, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *migrator) dropIndex(ctx context.Context, conn *sql.Conn, name string) error {
	m.log.Info("dropping index", "index", name)
	if _, err := conn.ExecContext(ctx, `DROP INDEX CONCURRENTLY IF EXISTS `+m.in(name)); err != nil {
		return fmt.Errorf("drop index %s: %w", name, err)
	}
	return nil
}

// findIndex says whether the table has an index of that name, and whether its build ended.
func (m *migrator) findIndex(ctx context.Context, q queryer, name string) (valid, exists bool, err error) {
	err = q.QueryRowContext(ctx, query("index"), m.in(name), m.quoted()).Scan(&valid)
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look up index %s: %w", name, err)
	}
	return valid, true, nil
}

// patientConn is a connection without a lock_timeout. Building and dropping concurrently waits for every transaction that
// is older, however long, and stops nobody meanwhile; a limit would only leave half-built indexes.
func (m *migrator) patientConn(ctx context.Context) (*sql.Conn, error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := conn.ExecContext(ctx, `SET lock_timeout = 0`); err != nil {
		conn.Close()
		return nil, fmt.Errorf("set lock_timeout: %w", err)
	}
	return conn, nil
}

// release gives a patient connection back as it was.
func (m *migrator) release(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = conn.ExecContext(ctx, `SET lock_timeout = '100ms'`)
	conn.Close()
}
