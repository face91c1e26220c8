package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

const (
	benchJobs    = 20_000
	benchBatch   = 1000
	benchWorkers = 2
)

// The bare SQL floor: the cheapest statements that do a claim's and a settlement's work on the same table, without
// kinds, priorities, floors, bounds in bytes, or reading what isn't asked for.
const (
	floorClaim = `WITH next AS MATERIALIZED (SELECT id FROM jobs WHERE finished_at IS NULL AND status <> ALL ('{running,done,dead}') AND kind = 'bench' AND priority = 0
		AND run_at <= statement_timestamp() ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
		UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = statement_timestamp() + interval '1 minute', lease_token = $2
		WHERE id = ANY (ARRAY (SELECT id FROM next)) RETURNING id, kind, key, payload, attempts`
	floorDone   = `UPDATE jobs SET status = 'done', finished_at = statement_timestamp(), leased_until = NULL WHERE id = ANY ($1) AND lease_token = $2 AND status <> 'done'`
	floorDelete = `DELETE FROM jobs WHERE id = ANY ($1) AND lease_token = $2 AND status <> 'done'`
)

// BenchmarkClaimAndSettle measures claim and settle beside the floor, in turns on tables alike. The metric that counts is
// the ratio; rates depend on the machine and its neighbours.
func BenchmarkClaimAndSettle(b *testing.B) {
	for _, c := range []struct {
		name     string
		deleting bool
	}{{"done", false}, {"deleted", true}} {
		b.Run(c.name, func(b *testing.B) {
			db := testdb.New(b)
			db.Exec(b, noAutovacuum)
			var ours, floor time.Duration
			for b.Loop() {
				fill(b, db)
				ours += drainAll(b, db, c.deleting)
				fill(b, db)
				floor += drainFloor(b, db, c.deleting)
			}
			jobs := float64(benchJobs * b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(jobs/ours.Seconds(), "jobs/s")
			b.ReportMetric(jobs/floor.Seconds(), "floor-jobs/s")
			b.ReportMetric(floor.Seconds()/ours.Seconds(), "of-floor")
		})
	}
}

// fill makes the table new, with 450 bytes of payload a job.
func fill(b *testing.B, db *testdb.DB) {
	b.Helper()
	db.Exec(b, `TRUNCATE jobs`)
	db.Exec(b, `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'bench', 'key' || g % 100, jsonb_build_object('n', g, 'text', repeat('x', 430)), now() - interval '1 hour' FROM generate_series(1, $1::int) g`, benchJobs)
	db.Exec(b, `VACUUM ANALYZE jobs`)
	db.Exec(b, `CHECKPOINT`)
}

func drainAll(b *testing.B, db *testdb.DB, deleting bool) time.Duration {
	b.Helper()
	q := newQueue(b, db, Options{BatchSize: benchBatch, DeleteDone: deleting})
	if _, err := q.Sweep(b.Context()); err != nil {
		b.Fatal(err)
	}
	return inParallel(b, func(ctx context.Context) (int, error) {
		leases, err := q.Claim(ctx, open)
		if err != nil {
			return 0, err
		}
		outcomes := make([]Outcome, len(leases))
		for i := range leases {
			outcomes[i] = Outcome{Lease: &leases[i], Verdict: Done}
		}
		lost, err := q.Settle(ctx, outcomes)
		return len(leases) - len(lost), err
	})
}

func drainFloor(b *testing.B, db *testdb.DB, deleting bool) time.Duration {
	b.Helper()
	settle := floorDone
	if deleting {
		settle = floorDelete
	}
	return inParallel(b, func(ctx context.Context) (int, error) {
		token, err := newToken()
		if err != nil {
			return 0, err
		}
		var ids []int64
		err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, floorClaim, benchBatch, token)
			var id int64
			var kind string
			var key *string
			var payload []byte
			var attempts int
			_, err := pgx.ForEachRow(rows, []any{&id, &kind, &key, &payload, &attempts}, func() error { ids = append(ids, id); return nil })
			return err
		})
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		tag, err := db.Pool.Exec(ctx, settle, ids, token)
		return int(tag.RowsAffected()), err
	})
}

// inParallel lets the workers go on until each finds nothing, and says how long that took.
func inParallel(b *testing.B, work func(context.Context) (int, error)) time.Duration {
	b.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	total, errs := 0, []error{}
	start := time.Now()
	for range benchWorkers {
		wg.Go(func() {
			for {
				n, err := work(b.Context())
				mu.Lock()
				total += n
				errs = append(errs, err)
				mu.Unlock()
				if n == 0 || err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil || total < benchJobs {
		b.Fatalf("%d jobs of %d: %v", total, benchJobs, err)
	}
	return took
}

// BenchmarkEmptyClaim is what polling costs.
func BenchmarkEmptyClaim(b *testing.B) {
	db := testdb.New(b)
	q := newQueue(b, db, Options{})
	for i := range 10 {
		q.Expect(fmt.Sprint("k", i))
	}
	for b.Loop() {
		if _, err := q.Claim(b.Context(), open); err != nil {
			b.Fatal(err)
		}
	}
}
