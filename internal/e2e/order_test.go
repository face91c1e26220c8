package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// orderedBroker is one that belongs to a test of order, and what can go wrong with it.
type orderedBroker struct {
	outlet
	faults []func() // each ends by itself
}

// TestOrderUnderFaults: 200 keys, four relays, a producer under way, relays that are killed, brokers that stop and start,
// messages that are refused: of each key every job arrives, the first arrivals in the order of enqueuing.
func TestOrderUnderFaults(t *testing.T) {
	t.Parallel()
	jobs := 8000
	if services.Long() {
		jobs = 100_000
	}
	for name, c := range map[string]struct {
		open func(*testing.T) orderedBroker
		part int
	}{"kafka": {orderedKafka, 1}, "rabbitmq": {orderedRabbit, 1}, "sqs": {orderedSQS, 4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := jobs
			if !services.Long() {
				n /= c.part // the server is slow
			}
			keepOrder(t, c.open(t), n)
		})
	}
}

func keepOrder(t *testing.T, b orderedBroker, jobs int) {
	db := testdb.New(t)
	env := b.settings.with(settings{
		"ROUTES": `[{kind: o, to: ["` + b.to + `"], order: key}]`,
		"LEASE":  "6s", "PUBLISH_TIMEOUT": "3s", "BATCH_SIZE": "200",
	})
	var relays [4]*process
	for i := range relays {
		relays[i] = start(t, db, env)
	}
	began := time.Now()
	produced := make(chan error, 1)
	go func() { produced <- orderedProducers(db, jobs) }()

	faults := 0
	rnd := rand.New(rand.NewPCG(1, uint64(jobs)))
	for undone := 1; undone > 0; faults++ {
		if i := rnd.IntN(len(relays)); rnd.IntN(2) == 0 || len(b.faults) == 0 {
			relays[i].kill()
			relays[i] = start(t, db, env)
		} else {
			b.faults[rnd.IntN(len(b.faults))]()
		}
		// Between two faults a part of the jobs gets through.
		part := jobs / 12
		at := value[int](t, db, `SELECT count(*) FROM `+db.Table+` WHERE status = 'done'`)
		within(t, 3*generous, "jobs get through", func() error {
			done := value[int](t, db, `SELECT count(*) FROM `+db.Table+` WHERE status = 'done'`)
			if undone = jobs - done; undone > 0 && done < at+part {
				return fmt.Errorf("%d done, %d to go", done, undone)
			}
			return nil
		})
	}
	took := time.Since(began)
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	if dead := value[int](t, db, `SELECT count(*) FROM `+db.Table+` WHERE status = 'dead'`); dead > 0 {
		t.Errorf("%d jobs are dead", dead)
	}
	h := historyOf(t, db, b.read(t, func(all []seen) bool { return len(distinct(all)) >= jobs }))
	h.check(t, jobs)
	t.Logf("%d jobs in %v, %d faults, %d duplicates, %d of them behind later jobs of their key", jobs, took.Round(time.Millisecond), faults, h.duplicates, h.late)
}

// orderedProducers commit jobs of 200 keys from several transactions at once, a few jobs each.
func orderedProducers(db *testdb.DB, jobs int) error {
	var all sync.WaitGroup
	errs := make(chan error, 4)
	client := outbox.Client{Table: db.Table}
	for w := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 2))
			for left := jobs / 4; left > 0; {
				some := make([]outbox.Job, min(1+rnd.IntN(20), left))
				for i := range some {
					some[i] = outbox.Job{Kind: "o", Key: fmt.Sprint("key-", rnd.IntN(200)), Payload: 1, MaxAttempts: 1000}
				}
				err := pgx.BeginFunc(context.Background(), db.Pool, func(tx pgx.Tx) error {
					_, err := client.EnqueueOrdered(context.Background(), tx, some...)
					return err
				})
				if err != nil {
					errs <- err
					return
				}
				left -= len(some)
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// history holds what arrived of each key against what was enqueued.
type history struct {
	due, first map[string][]string // by key: ids in the order of enqueuing, and of their first arrival
	duplicates int
	late       int // duplicates that came behind a later job of their key
}

func historyOf(t *testing.T, db *testdb.DB, all []seen) history {
	t.Helper()
	h := history{due: map[string][]string{}, first: map[string][]string{}}
	place := map[string]int{}
	for _, pair := range testdb.Column[string](t, db, `SELECT key || ' ' || id FROM `+db.Table+` WHERE kind = 'o' ORDER BY id`) {
		key, id, _ := strings.Cut(pair, " ")
		id = db.Schema + "/" + id
		place[id] = len(h.due[key])
		h.due[key] = append(h.due[key], id)
	}
	newest, have := map[string]int{}, map[string]bool{}
	for _, m := range all {
		key := str(m.key)[1:]
		if have[m.id] {
			h.duplicates++
			if place[m.id] < newest[key] {
				h.late++
			}
			continue
		}
		have[m.id] = true
		newest[key] = max(newest[key], place[m.id])
		h.first[key] = append(h.first[key], m.id)
	}
	return h
}

func (h history) check(t *testing.T, jobs int) {
	t.Helper()
	n := 0
	for key, due := range h.due {
		n += len(due)
		got := h.first[key]
		for i := range max(len(due), len(got)) {
			if i >= len(due) || i >= len(got) || due[i] != got[i] {
				t.Errorf("key %s, place %d: %d arrived of %d; from there on got %v, want %v", key, i, len(got), len(due), some(got, i), some(due, i))
				break
			}
		}
	}
	if n != jobs {
		t.Errorf("%d jobs were enqueued, want %d", n, jobs)
	}
}

func some(ids []string, from int) []string {
	return ids[min(from, len(ids)):min(from+5, len(ids))]
}

// orderedKafka is a broker of the test's own, which stops and starts.
func orderedKafka(t *testing.T) orderedBroker {
	own := services.OwnKafka(t)
	return orderedBroker{kafkaOutletOn(t, own.Addr, own.Addr), []func(){
		func() { own.Stop(); own.Start() },
		func() { own.Kill(); own.Start() },
	}}
}

// orderedRabbit is a node of the test's own. It stops and starts, and its exchange leads nowhere for a moment: messages
// of a key are returned while later ones of it could be taken.
func orderedRabbit(t *testing.T) orderedBroker {
	own := services.OwnRabbitMQ(t)
	o := rabbitOutletOn(t, own.URL, "")
	exchange := strings.TrimSuffix(strings.TrimPrefix(o.to, "rabbitmq:"), "/a.b")
	channel := func(f func(*amqp.Channel) error) {
		t.Helper()
		conn, err := amqp.Dial(own.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err == nil {
			err = f(ch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	unbound := func() {
		for range 20 {
			channel(func(ch *amqp.Channel) error { return ch.QueueUnbind(exchange, "#", exchange, nil) })
			channel(func(ch *amqp.Channel) error { return ch.QueueBind(exchange, "#", exchange, false, nil) })
		}
	}
	return orderedBroker{o, []func(){func() { own.Stop(); own.Start() }, unbound, unbound}}
}

// orderedSQS is a FIFO queue behind a line that is cut, and swallows. (The server keeps nothing over a stop.)
func orderedSQS(t *testing.T) orderedBroker {
	own := services.OwnSQS(t)
	l := newLine(t, "127.0.0.1:0", own.Addr)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cl := sqs.New(sqs.Options{HTTPClient: &http.Client{Transport: transport}, BaseEndpoint: &own.URL, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
	q, err := cl.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("order.fifo"), Attributes: map[string]string{"FifoQueue": "true", "VisibilityTimeout": "60"}})
	if err != nil {
		t.Fatal(err)
	}
	o := outlet{to: "sqs:order.fifo", settings: settings{"SQS_ENDPOINT": "http://" + l.addr, "SQS_REGION": "us-east-1"}, read: func(t *testing.T, done func([]seen) bool) []seen {
		return collect(done, func(context.Context) []seen { return readFIFO(t, cl, q.QueueUrl) })
	}}
	return orderedBroker{o, []func(){
		func() { l.cut(); hold(t, time.Second); l.heal() },
		func() { l.swallow(); hold(t, 4*time.Second); l.heal() },
	}}
}

// readFIFO receives once: two callers could hand over a group's messages in another order than they got them.
func readFIFO(t *testing.T, cl *sqs.Client, queue *string) (out []seen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	got, err := cl.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	var entries []types.DeleteMessageBatchRequestEntry
	for i, m := range got.Messages {
		out = append(out, fromSQS(m))
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
	}
	if len(entries) > 0 {
		if _, err := cl.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: entries}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
