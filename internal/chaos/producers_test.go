package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/outbox"
)

const (
	producerCount = 4
	pace          = 25 * time.Millisecond // of each producer's transactions
	pastJobs      = 300
	patience      = 15 * time.Second // of a producer with its database
)

// trade starts the producers and returns what stops them.
func (w *world) trade() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for i := range producerCount {
		p := &producer{world: w, rnd: rand.New(rand.NewPCG(w.seed, uint64(100+i)))}
		all.Go(func() { p.run(ctx) })
	}
	return func() { cancel(); all.Wait() }
}

// producer enqueues jobs over a connection of its own, and writes down what it knows of each transaction.
type producer struct {
	*world
	rnd   *rand.Rand
	conn  *pgx.Conn
	fault *atomic.Int32 // of the connection
}

func (p *producer) run(ctx context.Context) {
	defer p.hangUp()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		if p.conn == nil {
			p.dial(limited)
		}
		if p.conn != nil {
			p.transaction(limited)
		}
		cancel()
	}
}

// dial connects, unless the database is away.
func (p *producer) dial(ctx context.Context) {
	config := p.db.Config.Copy()
	config.RuntimeParams["application_name"] = "producer"
	p.fault = &atomic.Int32{}
	config.DialFunc = wired(p.fault)
	if conn, err := pgx.ConnectConfig(ctx, config); err == nil {
		p.conn = conn
	}
}

func (p *producer) hangUp() {
	if p.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.conn.Close(ctx)
		p.conn = nil
	}
}

// transaction enqueues a few jobs of one kind and ends in one of the ways in which transactions end. Whatever fails before
// COMMIT is rolled back; what fails in it is looked up at the end of the run.
func (p *producer) transaction(ctx context.Context) {
	kind := traded[p.rnd.IntN(len(traded))]
	jobs := p.jobs(kind)
	way := p.rnd.IntN(100)
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		p.hangUp()
		return
	}
	ids, err := p.enqueue(ctx, tx, kind, jobs)
	if err != nil {
		_ = tx.Rollback(ctx)
		p.hangUp()
		return // it has no ids: whatever of it were there would be found as never committed
	}
	fate := history.Committed
	switch {
	case way < 20:
		fate, err = history.RolledBack, tx.Rollback(ctx)
	default:
		if way < 26 {
			p.fault.Store([]int32{cutBefore, cutAfter}[way%2])
		}
		if err = tx.Commit(ctx); err != nil {
			fate = history.Unknown
		}
	}
	if err != nil {
		p.hangUp()
	}
	p.note(history.Transaction{Fate: fate, Kind: kind, IDs: ids})
}

func (w *world) note(tx history.Transaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.transactions = append(w.transactions, tx)
}

func (p *producer) enqueue(ctx context.Context, tx pgx.Tx, kind string, jobs []outbox.Job) ([]int64, error) {
	if kind == "poison" { // the client refuses such a header
		rows, err := tx.Query(ctx, `INSERT INTO jobs (kind, payload, headers) VALUES ('poison', $1, '{"nothing": null}') RETURNING id`, jobs[0].Payload)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	client := outbox.Client{Table: p.db.Table}
	if kinds[kind].Ordered {
		return client.EnqueueOrdered(ctx, tx, jobs...)
	}
	return client.Enqueue(ctx, tx, jobs...)
}

// jobs are a few of one kind, with canaries in what must stay between producer and consumer. They have more attempts than the
// faults of a run can use up.
func (p *producer) jobs(kind string) []outbox.Job {
	jobs := make([]outbox.Job, 1+p.rnd.IntN(5))
	for i := range jobs {
		j := outbox.Job{Kind: kind, MaxAttempts: 1000, Headers: map[string]any{"secret": p.canaries["a header"]}}
		if kinds[kind].Ordered || p.rnd.IntN(3) > 0 {
			j.Key = fmt.Sprint("key-", p.rnd.IntN(12))
		}
		text := fmt.Sprintf(`{"n": %d, "secret": %q}`, p.rnd.IntN(1000), p.canaries["a payload"])
		if j.Payload = json.RawMessage(text); p.rnd.IntN(6) == 0 && kind != "poison" {
			j.Payload, j.Body = nil, []byte("\x00"+text)
		}
		jobs[i] = j
	}
	return jobs
}

// enqueuePast commits what is replayed later.
func (w *world) enqueuePast() {
	w.t.Helper()
	for range 3 {
		ids := make([]int64, 0, pastJobs/3)
		rows, err := w.db.Pool.Query(w.t.Context(), `INSERT INTO jobs (kind, key, payload, max_attempts)
			SELECT 'past', 'key-' || g % 10, jsonb_build_object('n', g, 'secret', $2::text), 1000 FROM generate_series(1, $1::int) g RETURNING id`,
			pastJobs/3, w.canaries["a payload"])
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.note(history.Transaction{Kind: "past", IDs: ids})
	}
}
