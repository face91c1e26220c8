package testdb

import (
	_ "embed"
	"testing"

	"github.com/jobrelay/relay/internal/services"
)

//go:embed legacy.sql
var legacyTable string

// LegacyKind is the kind of the jobs that Legacy makes and OldWorkers work on.
const LegacyKind = "mail"

// Legacy returns a schema with a table of the well-known single-table design and n jobs: a quarter each ready, running
// (with leases from an hour ago to an hour ahead), done and dead.
func Legacy(t testing.TB, n int) *DB {
	t.Helper()
	return LegacyOn(t, services.Postgres(t), n)
}

// LegacyOn is Legacy on another server than the usual one.
func LegacyOn(t testing.TB, server string, n int) *DB {
	t.Helper()
	db := On(t, server)
	db.Exec(t, legacyTable)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, leased_until, last_error, run_at)
SELECT $1, jsonb_build_object('n', g, 'pad', repeat('x', 200)), (ARRAY['ready', 'running', 'done', 'dead'])[1 + g % 4], g % 3,
    CASE WHEN g % 4 = 1 THEN now() + (g % 7200 - 3600) * interval '1 second' END,
    CASE WHEN g % 4 = 3 AND g % 8 = 3 THEN 'boom' END,
    now() - interval '1 day' + g * interval '1 millisecond'
FROM generate_series(1, $2::bigint) g`, LegacyKind, n)
	db.Exec(t, "ANALYZE jobs")
	return db
}
