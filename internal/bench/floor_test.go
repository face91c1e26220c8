package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/testdb"
)

const (
	batchSize = 1000
	workers   = 4
)

// bareClaim and its settlements are the least SQL that claims and settles on the same table: no pairs, no floors, no
// shares, no bytes, one kind.
const (
	bareClaim = `WITH next AS MATERIALIZED (
		SELECT id FROM %[1]s WHERE finished_at IS NULL AND status <> ALL ('{running,done,dead}') AND kind = 'bench' AND priority = 0
		  AND run_at <= statement_timestamp() AND (run_at, id) > ($1, $2)
		ORDER BY run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED)
	UPDATE %[1]s SET status = 'running', attempts = attempts + 1, leased_until = statement_timestamp() + interval '1 minute', lease_token = $4
	WHERE id = ANY (ARRAY (SELECT id FROM next)) RETURNING id, run_at, payload::text`
	bareDone   = `UPDATE %[1]s SET status = 'done', finished_at = statement_timestamp(), leased_until = NULL WHERE id = ANY ($1) AND lease_token = $2`
	bareDelete = `DELETE FROM %[1]s WHERE id = ANY ($1) AND lease_token = $2`
)

// floor claims and settles everything with bare SQL; publish, when given, stands between the two.
type floor struct {
	db      *testdb.DB
	delete  bool
	publish func(ctx context.Context, ids []int64, payloads [][]byte) error
}

// run drains the table with as many workers as the relay has, each with a walk of its own below which nothing is left.
func (f floor) run(b *testing.B, jobs int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(jobs))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for token := int64(w + 1); left.Load() > 0; token += workers {
				n, err := f.batch(context.Background(), token)
				if err != nil {
					b.Error(err)
					return
				}
				left.Add(-int64(n))
			}
		})
	}
	all.Wait()
}

func (f floor) batch(ctx context.Context, token int64) (int, error) {
	conn, err := f.db.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var ids []int64
	var payloads [][]byte
	bare := &pgx.Batch{}
	bare.Queue("BEGIN")
	bare.Queue("SET LOCAL enable_bitmapscan = off")
	bare.Queue("SET LOCAL enable_sort = off")
	bare.Queue("SET LOCAL synchronous_commit = off")
	bare.Queue(fmt.Sprintf(bareClaim, f.db.Table), "-infinity", int64(0), batchSize, token).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			var payload []byte
			if err := rows.Scan(&id, nil, &payload); err != nil {
				return err
			}
			ids, payloads = append(ids, id), append(payloads, payload)
		}
		return rows.Err()
	})
	bare.Queue("COMMIT")
	if err := conn.SendBatch(ctx, bare).Close(); err != nil || len(ids) == 0 {
		return 0, err
	}
	if f.publish != nil {
		if err := f.publish(ctx, ids, payloads); err != nil {
			return 0, err
		}
	}
	settle := bareDone
	if f.delete {
		settle = bareDelete
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(settle, f.db.Table), ids, token)
	return len(ids), err
}

// produce sends a batch to a topic with another client than the relay's, in one request per broker.
func produce(cl *kgo.Client, topic string) func(context.Context, []int64, [][]byte) error {
	return func(ctx context.Context, ids []int64, payloads [][]byte) error {
		records := make([]*kgo.Record, len(ids))
		for i := range ids {
			records[i] = &kgo.Record{Topic: topic, Value: payloads[i], Headers: []kgo.RecordHeader{
				{Key: "relay-id", Value: fmt.Append(nil, "bench/", ids[i])}, {Key: "relay-kind", Value: []byte("bench")}, {Key: "relay-attempt", Value: []byte("1")},
			}}
		}
		return cl.ProduceSync(ctx, records...).FirstErr()
	}
}
