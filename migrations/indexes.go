package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// foundIndex is what has the name of one of the relay's indexes.
type foundIndex struct {
	exists bool
	ours   bool   // what the name stands for, by its columns and predicate; perhaps half built
	valid  bool   // and its build ended
	is     string // what Postgres says of it, if it isn't ours
}

// findIndex looks up one of the relay's indexes by its short name.
func (m *migrator) findIndex(ctx context.Context, name string) (foundIndex, error) {
	return m.names.readIndex(m.db.QueryRowContext(ctx, query("index"), m.in(m.index(name)), m.quoted()), name)
}

// readIndex reads the answer to the query "index".
func (n names) readIndex(row interface{ Scan(...any) error }, name string) (foundIndex, error) {
	var ofTable, valid bool
	var def sql.NullString
	err := row.Scan(&ofTable, &valid, &def)
	if errors.Is(err, sql.ErrNoRows) {
		return foundIndex{}, nil
	}
	if err != nil {
		return foundIndex{}, fmt.Errorf("look up index %s: %w", n.index(name), err)
	}
	want := indexDefinition(name)
	f := foundIndex{exists: true, ours: ofTable && canonical(def.String) == canonical(want)}
	f.valid = f.ours && valid
	switch {
	case f.ours:
	case def.Valid && ofTable:
		f.is = def.String
	case def.Valid:
		f.is = "an index of another table"
	default:
		f.is = "no index"
	}
	return f, nil
}

// taken says what is wrong with an index that only has the name, and what to do.
func (n names) taken(name string, f foundIndex) string {
	return fmt.Sprintf("%s is %s, must be %s: give it another name or drop it, then run `relay migrate up`",
		n.in(n.index(name)), f.is, indexDefinition(name))
}

// indexDefinition is what Postgres says of an index that is ours, as far as canonical looks: what its file says behind
// the table.
func indexDefinition(name string) string {
	b, err := files.ReadFile("sql/indexes/" + name + ".sql")
	if err != nil {
		panic(err) // embedded; every name is a constant
	}
	_, def, _ := strings.Cut(string(b), "{{.Table}} ")
	return "USING btree " + strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(def), ";")), " ")
}

var storageOfIndex = regexp.MustCompile(` WITH \([^)]*\)`)

// canonical leaves out of a definition what makes no difference: storage parameters, and how names and conditions are
// quoted and bracketed, which depends on settings of the session.
func canonical(def string) string {
	return strings.NewReplacer(`"`, "", "(", "", ")", "").Replace(storageOfIndex.ReplaceAllString(def, ""))
}

// indexProblems: the names of the indexes that Up builds are free, or have what they stand for.
func (m *migrator) indexProblems(ctx context.Context) ([]string, error) {
	var p []string
	for _, name := range m.wanted() {
		f, err := m.findIndex(ctx, name)
		if err != nil {
			return nil, err
		}
		if f.exists && !f.ours {
			p = append(p, m.taken(name, f))
		}
	}
	return p, nil
}

// wanted are the indexes that the options ask for.
func (m *migrator) wanted() []string {
	if m.options.WithoutOrder {
		return indexes
	}
	return append(slices.Clone(indexes), orderIndex)
}

// buildIndexes builds those that are missing or were left half built, one after the other.
func (m *migrator) buildIndexes(ctx context.Context, v view, which ...string) error {
	conn, err := m.patientConn(ctx)
	if err != nil {
		return err
	}
	defer m.release(conn)
	for _, name := range which {
		f, err := m.findIndex(ctx, name)
		switch {
		case err != nil:
			return err
		case f.valid:
			continue
		case f.ours:
			if err := m.dropIndex(ctx, conn, v.index(name)); err != nil {
				return err
			}
		case f.exists: // since the look before the first step
			return fmt.Errorf("%w: %s", ErrNameTaken, m.taken(name, f))
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

// dropIndexes drops those that are ours; somebody else's of the same name stay.
func (m *migrator) dropIndexes(ctx context.Context, which ...string) error {
	conn, err := m.patientConn(ctx)
	if err != nil {
		return err
	}
	defer m.release(conn)
	for _, name := range which {
		f, err := m.findIndex(ctx, name)
		switch {
		case err != nil:
			return err
		case f.ours:
			if err := m.dropIndex(ctx, conn, m.index(name)); err != nil {
				return err
			}
		case f.exists:
			m.log.Warn("an index stays that only has the name", "index", m.index(name), "is", f.is, "must_be", indexDefinition(name))
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
