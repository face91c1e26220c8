// Package testdb gives each test a schema of its own on the real Postgres, migrated, and drops it when the test ends.
//
// [New] is what most tests want; [Empty] has no tables yet, [Legacy] has a table of the well-known single-table design
// with jobs in every status, which [OldWorkers] then work on as that design does.
package testdb

import (
	"context"
	"crypto/rand"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/migrations"
)

// DB is one test's schema. Every connection made from its fields has the schema as its search_path.
type DB struct {
	Pool   *pgxpool.Pool   // at most 16 connections
	Config *pgx.ConnConfig // a fresh copy may be changed
	URL    string
	Schema string
	Table  string // "schema.jobs"
}

// dropTimeout bounds the clean-up: a test that left a transaction open must not hang the run.
const dropTimeout = 15 * time.Second

// New returns a schema with everything that migrations.Up makes.
func New(t testing.TB) *DB {
	t.Helper()
	db := Empty(t)
	db.Migrate(t, migrations.Options{})
	return db
}

// Migrate runs migrations.Up on the schema's table jobs, whatever o.Table says.
func (db *DB) Migrate(t testing.TB, o migrations.Options) {
	t.Helper()
	o.Table = db.Table
	if err := migrations.Up(t.Context(), db.Config, o); err != nil {
		t.Fatalf("migrate %s: %v", db.Table, err)
	}
}

// Empty returns a schema without tables.
func Empty(t testing.TB) *DB {
	t.Helper()
	return On(t, services.Postgres(t))
}

// On is Empty on another server than the usual one.
func On(t testing.TB, server string) *DB {
	t.Helper()
	schema := schemaName(t.Name())
	db := &DB{Schema: schema, Table: schema + ".jobs", URL: withSearchPath(t, server, schema)}
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatalf("parse %s: %v", db.URL, err)
	}
	db.Config = config.ConnConfig.Copy()
	config.MaxConns = 16
	config.ConnConfig.RuntimeParams["application_name"] = schema // drop finds what a failed test left open
	if db.Pool, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config); err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { db.drop(t) })
	db.Exec(t, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
	return db
}

// Exec runs SQL and fails the test when it fails. Without arguments it may be several statements.
func (db *DB) Exec(t testing.TB, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Pool.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", short(sql), err)
	}
	return tag.RowsAffected()
}

// One reads the single value that sql returns.
func One[T any](t testing.TB, db *DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.Pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", short(sql), err)
	}
	return v
}

// Column reads the single column that sql returns.
func Column[T any](t testing.TB, db *DB, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", short(sql), err)
	}
	vs, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", short(sql), err)
	}
	return vs
}

// drop ends what still uses the schema and removes it, in bounded time.
func (db *DB) drop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Pool.Close() // waits for every connection to be given back
	}()
	conn, err := pgx.ConnectConfig(ctx, db.Config)
	if err != nil {
		t.Logf("drop schema %s: %v", db.Schema, err)
		return
	}
	defer conn.Close(ctx)
	select {
	case <-closed:
	case <-time.After(dropTimeout / 5):
		t.Errorf("a connection of the pool was never given back; its session is ended")
	}
	for _, sql := range []string{
		"SET client_min_messages = error",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" + db.Schema + "'",
		"DROP SCHEMA IF EXISTS " + pgx.Identifier{db.Schema}.Sanitize() + " CASCADE",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Logf("drop schema %s: %v", db.Schema, err)
		}
	}
}

var unusual = regexp.MustCompile(`[^a-z0-9]+`)

// schemaName is the test's name, so that a schema left behind tells where it is from, and enough chance to be unique.
func schemaName(test string) string {
	name := strings.Trim(unusual.ReplaceAllString(strings.ToLower(test), "_"), "_")
	return "t_" + name[:min(len(name), 30)] + "_" + strings.ToLower(rand.Text()[:8])
}

func withSearchPath(t testing.TB, server, schema string) string {
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("the address of the test server is no URL: %v", err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func short(sql string) string {
	sql = strings.Join(strings.Fields(sql), " ")
	if len(sql) > 100 {
		return sql[:100] + "…"
	}
	return sql
}
