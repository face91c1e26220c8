package bench

import (
	"context"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// BenchmarkOrder: a route that keeps the order of keys beside the same one that doesn't, on the same jobs.
func BenchmarkOrder(b *testing.B) {
	for _, t := range []struct {
		name string
		to   func(testing.TB) target
		part int // of the jobs: slow brokers get fewer
	}{{"discard", discard, 1}, {"kafka", kafka, 1}, {"rabbitmq", rabbitmq, 4}, {"sqs-fifo", fifo, 20}} {
		for _, keys := range []struct {
			name, sql string
		}{
			{"200-keys", `'key' || g % 200`},
			{"one-long-key", `CASE WHEN g % 2 = 0 THEN 'long' ELSE 'key' || g % 401 END`},
		} {
			b.Run(t.name+"/"+keys.name, func(b *testing.B) {
				defer func(all int) { size.jobs = all }(size.jobs)
				size.jobs = max(size.jobs/t.part, 100)
				to := t.to(b)
				ordered := to
				ordered.order = "key"
				fill := func(b testing.TB, db *testdb.DB) {
					fill(b, db)
					db.Exec(b, `UPDATE `+db.Table+` SET key = (SELECT k FROM (SELECT id AS g) g, LATERAL (SELECT `+keys.sql+` AS k) k)`)
					db.Exec(b, `VACUUM `+db.Table)
				}
				compareOn(b, fill, "unordered",
					func(db *testdb.DB) { relayAll(b, db, to, false) },
					func(db *testdb.DB) { relayAll(b, db, ordered, false) })
			})
		}
	}
}

// longKey is the key that holds a backlog.
const longKey = "long"

// BenchmarkLongKey: from commit to the broker's word for jobs of other keys, while one key has a hundred thousand waiting.
func BenchmarkLongKey(b *testing.B) {
	for _, t := range []struct {
		name string
		to   func(testing.TB) target
	}{{"kafka", kafka}, {"rabbitmq", rabbitmq}} {
		for _, backlog := range []int{0, size.jobs} {
			b.Run(t.name+map[bool]string{true: "/beside-it", false: "/without"}[backlog > 0], func(b *testing.B) {
				for b.Loop() {
					db, to := testdb.New(b), t.to(b)
					to.order = "key"
					db.Exec(b, `INSERT INTO `+db.Table+` (kind, key, payload) SELECT 'bench', $1, '{"n": 1}' FROM generate_series(1, $2::int)`, longKey, backlog)
					latency(b, db, to, 500, min(size.jobs/10, 5_000))
					var left int
					if err := db.Pool.QueryRow(context.Background(), `SELECT count(*) FROM `+db.Table+` WHERE status <> 'done'`).Scan(&left); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(left), "left")
				}
			})
		}
	}
}
