package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/internal/services/postgres"
)

//go:embed schema.sql
var schemaSQL string

//go:embed drop.sql
var dropSQL string

// Database is where the demo works: a private server, or a schema of its own in a given database.
type Database struct {
	URL   string
	close func() error
}

const closeTimeout = 20 * time.Second

// StartPrivate starts a private Postgres, which Close ends and removes. log gets the progress of a first download.
func StartPrivate(ctx context.Context, log *slog.Logger) (*Database, error) {
	server, err := postgres.Start(ctx, postgres.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	return &Database{URL: server.URL, close: server.Stop}, nil
}

// UseGiven makes the schema relay_demo in a given database, over a direct connection that it holds until Close drops
// the schema. What a demo that was killed left behind is removed first; a schema that is somebody else's is refused.
func UseGiven(ctx context.Context, url string, connect func(context.Context) (*pgx.Conn, error)) (*Database, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := makeSchema(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return &Database{URL: url, close: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := drop(ctx, conn, connect)
		if err != nil {
			return fmt.Errorf("dropping the schema %s: %w", Schema, err)
		}
		return nil
	}}, nil
}

// Close removes everything that the demo made. It may be called twice.
func (d *Database) Close() error {
	if d.close == nil {
		return nil
	}
	err := d.close()
	d.close = nil
	return err
}

// makeSchema creates the schema. A lock that the session holds keeps two demos apart; the schema's comment tells a
// demo's leftovers from what isn't ours.
func makeSchema(ctx context.Context, conn *pgx.Conn) error {
	var locked bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtext('relay demo'))").Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return errors.New("another demo works in this database")
	}
	var exists, ours bool
	if err := conn.QueryRow(ctx, schemaSQL).Scan(&exists, &ours); err != nil {
		return err
	}
	if exists && !ours {
		return fmt.Errorf("the schema %s exists and isn't a demo's: drop or rename it, or give the demo another database", Schema)
	}
	if exists {
		if _, err := conn.Exec(ctx, dropSQL); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "CREATE SCHEMA relay_demo; COMMENT ON SCHEMA relay_demo IS 'made by relay demo, which drops it'")
	return err
}

// drop removes the schema, over another connection if the one that was held is gone.
func drop(ctx context.Context, conn *pgx.Conn, connect func(context.Context) (*pgx.Conn, error)) error {
	_, err := conn.Exec(ctx, dropSQL)
	_ = conn.Close(ctx)
	if err == nil {
		return nil
	}
	if conn, err = connect(ctx); err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, dropSQL)
	return err
}
