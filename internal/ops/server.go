package ops

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldestPostgres is the oldest supported major version.
const oldestPostgres = 15

var (
	// ErrOldPostgres can't be waited out.
	ErrOldPostgres = fmt.Errorf("the server is too old: PostgreSQL %d is the oldest supported version", oldestPostgres)
	// ErrReadOnly is a database that takes no writes, by its settings or as a standby.
	ErrReadOnly = errors.New("the database is read-only")
)

//go:embed server.sql
var serverSQL string

// Server is what answers at a database URL.
type Server struct {
	Number         int    // of the version, as in server_version_num
	Version        string // as in server_version
	Database, User string
	Standby        bool
	ReadOnly       bool
	Pooled         bool // the URL leads through a pooler, which gives out process ids of its own
}

// LookAt asks the server.
func LookAt(ctx context.Context, db *pgxpool.Pool) (Server, error) {
	var s Server
	err := db.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, serverSQL)
		if err != nil {
			return err
		}
		var backend uint32
		s.User = conn.Conn().Config().User
		_, err = pgx.ForEachRow(rows, []any{&s.Number, &s.Version, &s.Database, &s.Standby, &s.ReadOnly, &backend}, func() error {
			s.Pooled = conn.Conn().PgConn().PID() != backend
			return nil
		})
		return err
	})
	if err != nil {
		return s, fmt.Errorf("asking the database: %w", err)
	}
	return s, nil
}

// Usable says why a relay can't work with the server now, or nil.
func (s Server) Usable() error {
	switch {
	case s.Number/10000 < oldestPostgres:
		return fmt.Errorf("PostgreSQL %s: %w", s.Version, ErrOldPostgres)
	case s.Standby:
		return fmt.Errorf("%w: it is a standby", ErrReadOnly)
	case s.ReadOnly:
		return ErrReadOnly
	}
	return nil
}
