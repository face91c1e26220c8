package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// One operation is one transaction; jobs/s tells the sizes apart.
func BenchmarkEnqueue(b *testing.B) {
	payload := json.RawMessage(fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", 450)))
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("jobs=%d", size), func(b *testing.B) {
			db := testdb.New(b)
			jobs := make([]outbox.Job, size)
			for i := range jobs {
				jobs[i] = outbox.Job{Kind: "bench", Payload: payload}
			}
			for b.Loop() {
				err := pgx.BeginFunc(b.Context(), db.Pool, func(tx pgx.Tx) error {
					_, err := outbox.Enqueue(b.Context(), tx, jobs...)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
