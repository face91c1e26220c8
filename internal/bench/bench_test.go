package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/relay"
	"github.com/jobrelay/relay/sinks"
)

// jobs of one round, and rounds; small in the smoke test that keeps all this from rotting.
var size = struct{ jobs, rounds int }{number("RELAY_BENCH_JOBS", 100_000), number("RELAY_BENCH_ROUNDS", 3)}

func number(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// BenchmarkDiscard: the engine and the lease protocol without a broker, beside the bare SQL.
func BenchmarkDiscard(b *testing.B) {
	for _, c := range []struct {
		name   string
		delete bool
	}{{"done", false}, {"deleted", true}} {
		b.Run(c.name, func(b *testing.B) {
			compare(b, "floor", func(db *testdb.DB) { floor{db: db, delete: c.delete}.run(b, size.jobs) },
				func(db *testdb.DB) { relayAll(b, db, discard(b), c.delete) })
		})
	}
}

// BenchmarkKafka: beside the bare chain claim → produce → settle.
func BenchmarkKafka(b *testing.B) {
	for _, c := range []struct {
		name   string
		delete bool
	}{{"done", false}, {"deleted", true}} {
		b.Run(c.name, func(b *testing.B) {
			to := kafka(b)
			cl, err := kgo.NewClient(kgo.SeedBrokers(services.Kafka(b)), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.StickyPartitioner()),
				kgo.ProducerBatchCompression(kgo.Lz4Compression()))
			if err != nil {
				b.Fatal(err)
			}
			defer cl.Close()
			compare(b, "chain", func(db *testdb.DB) {
				floor{db: db, delete: c.delete, publish: produce(cl, to.address)}.run(b, size.jobs)
			}, func(db *testdb.DB) { relayAll(b, db, to, c.delete) })
		})
	}
}

// BenchmarkRabbitMQ and BenchmarkSQS: the brokers' own pace, beside the bare SQL.
func BenchmarkRabbitMQ(b *testing.B) { beside(b, rabbitmq(b), size.jobs/4) }
func BenchmarkSQS(b *testing.B)      { beside(b, sqs(b), size.jobs/20) }

func beside(b *testing.B, to target, jobs int) {
	defer func(all int) { size.jobs = all }(size.jobs)
	size.jobs = max(jobs, 100)
	compare(b, "floor", func(db *testdb.DB) { floor{db: db}.run(b, size.jobs) }, func(db *testdb.DB) { relayAll(b, db, to, false) })
}

// compare runs both in turn and reports the medians and their ratio.
func compare(b *testing.B, name string, bare, whole func(*testdb.DB)) {
	compareOn(b, fill, name, bare, whole)
}

// compareOn is compare with another table.
func compareOn(b *testing.B, fill func(testing.TB, *testdb.DB), name string, bare, whole func(*testdb.DB)) {
	db := testdb.New(b)
	var bares, wholes, ratios, cpus []float64
	for b.Loop() {
		for range size.rounds {
			fill(b, db)
			x, _ := timed(func() { bare(db) })
			fill(b, db)
			y, cpu := timed(func() { whole(db) })
			bares, wholes = append(bares, float64(size.jobs)/x), append(wholes, float64(size.jobs)/y)
			ratios, cpus = append(ratios, x/y), append(cpus, cpu*100_000/float64(size.jobs))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(bares), name+"-jobs/s")
	b.ReportMetric(median(wholes), "relay-jobs/s")
	b.ReportMetric(median(ratios), "relay/"+name)
	b.ReportMetric(median(cpus), "cpu-s/100k")
}

// timed returns the seconds on the clock and of this process's processor time.
func timed(f func()) (wall, cpu float64) {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	start := time.Now()
	f()
	wall = time.Since(start).Seconds()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	seconds := func(r *syscall.Rusage) float64 {
		return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	return wall, seconds(&after) - seconds(&before)
}

func median(v []float64) float64 {
	slices.SortFunc(v, cmp.Compare)
	return v[len(v)/2]
}

// fill makes the table new, with jobs of some 450 bytes each that are due.
func fill(b testing.TB, db *testdb.DB) {
	b.Helper()
	db.Exec(b, `TRUNCATE `+db.Table)
	db.Exec(b, `INSERT INTO `+db.Table+` (kind, payload, run_at) SELECT 'bench', jsonb_build_object('n', g, 'pad', repeat(md5(g::text), 12)), now() - interval '1 minute' FROM generate_series(1, $1::int) g`, size.jobs)
	db.Exec(b, `CHECKPOINT`)
}

// target is a sink and an address of its own.
type target struct {
	sink    sinks.Sink
	address string
	order   string // as a route writes it
}

// engine makes a relay with production's defaults but for the batch, which is the floor's.
func engine(b testing.TB, db *testdb.DB, to target, deleteDone bool) *relay.Relay {
	b.Helper()
	store, err := claim.New(db.Pool, claim.Options{Table: db.Table, BatchSize: batchSize, DeleteDone: deleteDone})
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{
		Store: store, Source: "bench", Workers: workers, Retention: time.Hour,
		Routes: []relay.Route{{Kind: "bench", To: []string{"to:" + to.address}, Order: to.order}}, Sinks: map[string]sinks.Sink{"to": to.sink},
	})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// relayAll relays everything in the table and ends when all is done.
func relayAll(b testing.TB, db *testdb.DB, to target, deleteDone bool) {
	b.Helper()
	counted := &counter{Sink: to.sink, all: make(chan struct{})}
	counted.left = size.jobs
	through := to
	through.sink = counted.whole(to.sink)
	stop := start(engine(b, db, through, deleteDone))
	<-counted.all
	if err := stop(); err != nil { // the drain settles the last batches
		b.Error(err)
	}
	var undone int
	if err := db.Pool.QueryRow(context.Background(), `SELECT count(*) FROM `+db.Table+` WHERE status <> 'done'`).Scan(&undone); err != nil || undone > 0 {
		b.Errorf("%d jobs are not done: %v", undone, err)
	}
}

func start(r *relay.Relay) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, context.Background()) }()
	return func() error { cancel(); return <-ended }
}

// counter is told of every acceptance.
type counter struct {
	sinks.Sink
	mu   sync.Mutex
	left int
	all  chan struct{}
	at   func(m sinks.Message, now time.Time)

	counts func(m sinks.Message) bool // nil: all do
}

// whole is the counter with the promise that the counted sink makes.
func (c *counter) whole(counted sinks.Sink) sinks.Sink {
	if _, ok := counted.(sinks.Sequencer); ok {
		return sequencer{c}
	}
	return c
}

// sequencer counts before a sink that keeps the order of a run.
type sequencer struct{ *counter }

func (sequencer) KeepsOrder() {}

func (c *counter) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	c.Sink.Publish(ctx, batch, results)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range results {
		if r.Outcome != sinks.Accepted || c.counts != nil && !c.counts(batch[i]) {
			continue
		}
		if c.at != nil {
			c.at(batch[i], now)
		}
		if c.left--; c.left == 0 {
			close(c.all)
		}
	}
}

// BenchmarkLatency: from commit to the broker's word at 1,000 jobs a second, one job a transaction.
func BenchmarkLatency(b *testing.B) {
	for name, to := range map[string]func(testing.TB) target{"discard": discard, "kafka": kafka, "rabbitmq": rabbitmq} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				latency(b, testdb.New(b), to(b), 1000, min(size.jobs/10, 10_000))
			}
		})
	}
}

// latency enqueues jobs of 100 keys at a rate, and reports how long they take.
func latency(b *testing.B, db *testdb.DB, to target, perSecond, jobs int) {
	var mu sync.Mutex
	committed, accepted := map[string]time.Time{}, map[string]time.Time{}
	c := &counter{Sink: to.sink, left: jobs, all: make(chan struct{}), at: func(m sinks.Message, now time.Time) { accepted[m.ID] = now }}
	c.counts = func(m sinks.Message) bool { return m.Key == nil || *m.Key != longKey }
	through := to
	through.sink = c.whole(to.sink)
	stop := start(engine(b, db, through, false))
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var writers sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range jobs {
		<-tick.C
		slots <- struct{}{}
		writers.Go(func() {
			defer func() { <-slots }()
			rows, _ := db.Pool.Query(context.Background(), `INSERT INTO `+db.Table+` (kind, key, payload) VALUES ('bench', 'key' || $1::int % 100, '{"n": 1}') RETURNING id`, i)
			id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			committed[fmt.Sprint("bench/", id)] = time.Now()
		})
	}
	writers.Wait()
	<-c.all
	if err := stop(); err != nil {
		b.Error(err)
	}
	var ms []float64
	for id, at := range accepted {
		ms = append(ms, float64(max(0, at.Sub(committed[id])).Microseconds())/1000)
	}
	slices.Sort(ms)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms[len(ms)/2], "p50-ms")
	b.ReportMetric(ms[len(ms)*99/100], "p99-ms")
}
