package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// oldClaim is the claim of a worker of the well-known design; %s takes the guard that it gets beside relays.
const oldClaim = `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '30 seconds'
WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() AND kind = 'mail'%s
            ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, attempts`

const (
	guard = " AND NOT relay_owns(kind, key, id)"
	// The same written out: the share is read once for each claim, not for each row.
	guardWrittenOut = ` AND ('x' || substr(md5(coalesce(key, id::text)), 1, 8))::bit(32)::bigint % 100
                >= coalesce((SELECT share FROM relay_kinds WHERE kind = 'mail'), 0)`
)

// BenchmarkGuard: what the guard costs an old worker's claim with 200,000 jobs of its own waiting, while relays own half of
// the kind: when they keep up, and when so many of theirs lie before the first job of its own.
func BenchmarkGuard(b *testing.B) {
	for _, pile := range []int{0, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("relays'=%d", pile), func(b *testing.B) {
			bare, guarded := waiting(b, 2*size.jobs, 0), waiting(b, 2*size.jobs, pile)
			var without, with, writtenOut []float64
			for b.Loop() {
				for range 10 {
					without = append(without, claimOld(b, bare, ""))
					with = append(with, claimOld(b, guarded, guard))
					writtenOut = append(writtenOut, claimOld(b, guarded, guardWrittenOut))
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(without), "bare-µs")
			b.ReportMetric(median(with), "guarded-µs")
			b.ReportMetric(median(writtenOut), "written-out-µs")
			b.ReportMetric(median(with)/median(without), "guarded/bare")
		})
	}
}

// waiting returns an adopted table with n jobs that old workers own, behind so many that relays own.
func waiting(b *testing.B, n, pile int) *pgx.Conn {
	b.Helper()
	db := testdb.Legacy(b, 0)
	db.Migrate(b, migrations.Options{})
	db.Exec(b, `INSERT INTO relay_kinds (kind, share) VALUES ('mail', 50)`)
	const insert = `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'mail', $2 || g, jsonb_build_object('n', g, 'text', repeat('x', 430)), now() - $3::text::interval + g * interval '1 millisecond'
		FROM generate_series(1, $1::int * 3) g WHERE relay_owns('mail', $2 || g, 0) = $4 ORDER BY g LIMIT $1`
	db.Exec(b, insert, n, "own-", "1 hour", false)
	db.Exec(b, insert, pile, "relay-", "2 hours", true)
	db.Exec(b, `VACUUM ANALYZE jobs`)
	conn, err := pgx.ConnectConfig(b.Context(), db.Config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(b.Context(), "SET synchronous_commit = off"); err != nil { // the claim is measured, not the disk
		b.Fatal(err)
	}
	return conn
}

// claimOld claims a job, and says how many microseconds that took.
func claimOld(b *testing.B, conn *pgx.Conn, guard string) float64 {
	b.Helper()
	start := time.Now()
	var id, attempts int64
	err := conn.QueryRow(b.Context(), fmt.Sprintf(oldClaim, guard)).Scan(&id, &attempts)
	if errors.Is(err, pgx.ErrNoRows) {
		b.Fatal("all jobs were claimed: fewer rounds")
	} else if err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds() * 1e6
}
