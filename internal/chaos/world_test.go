package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
	"github.com/jobrelay/relay/internal/testdb"
)

// Sizes of a run.
const (
	relayCount     = 3
	lease          = 10 * time.Second
	publishTimeout = 8 * time.Second // a loaded machine must not look like a silent broker
	drainTimeout   = 12 * time.Second
	share          = 50 // percent of the shared kind that relays own
)

// world is everything that a run consists of.
type world struct {
	t      *testing.T
	seed   uint64
	binary string   // the relay
	env    []string // settings of the relays beside those that launch gives them
	noted  bool     // changes of the jobs are noted in the ledger

	database, rabbit, queues *services.Own
	brokers                  []*services.Own // of Kafka
	db                       *testdb.DB
	relays                   [relayCount]*relay
	canaries                 map[string]string // by what they are
	rabbitURL                string            // as a relay's own user
	slowest                  time.Duration     // recovery after a fault
	stopOldWorkers           func()

	mu           sync.Mutex
	transactions []history.Transaction
	work         []history.Work
	faults       []history.Fault
	late         []history.Fault // that the run didn't make
	texts        []history.Text
}

// relay is a process that is started again and again under the same name, with lines of its own.
type relay struct {
	*stage.Process
	number, generation int
	lines              map[string][]*stage.Line // by server; Kafka has one to each broker
}

// name is what the process is called in the history.
func (r *relay) name() string { return fmt.Sprintf("relay-%d.%d", r.number, r.generation) }

// newWorld starts the servers, Kafka with so many brokers, Postgres with these settings.
func newWorld(t *testing.T, seed uint64, brokers int, postgres ...string) *world {
	t.Helper()
	w := &world{t: t, seed: seed, binary: binary, canaries: map[string]string{
		"a payload": "payload-" + rand.Text(), "a header": "header-" + rand.Text(), "the key of AWS": rand.Text(), "the password of RabbitMQ": rand.Text(),
	}}
	w.database = services.OwnPostgres(t, postgres...)
	w.brokers = kafkaBrokers(t, brokers)
	w.rabbit = services.OwnRabbitMQ(t)
	w.queues = services.OwnSQS(t)
	u, err := url.Parse(w.database.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.canaries["the password of Postgres"], _ = u.User.Password()
	w.setUpDatabase()
	w.setUpRabbitMQ()
	w.setUpKafka()
	w.setUpSQS()
	for i := range w.relays {
		w.relays[i] = &relay{number: i + 1, lines: map[string][]*stage.Line{
			history.OnDatabase: {stage.NewLine(t, "127.0.0.1:0", w.database.Addr)},
			"rabbitmq":         {stage.NewLine(t, "127.0.0.1:0", w.rabbit.Addr)},
			"sqs":              {stage.NewLine(t, "127.0.0.1:0", w.queues.Addr)},
		}}
		for _, b := range w.brokers {
			w.relays[i].lines["kafka"] = append(w.relays[i].lines["kafka"], stage.NewLine(t, b.Advertised[i], b.Proxied[i]))
		}
	}
	return w
}

// launch starts a relay's next generation. It doesn't wait until it is ready: the servers may be away.
func (w *world) launch(r *relay) {
	w.t.Helper()
	r.generation++
	through := func(on string) string { return addresses(r.lines[on]) }
	log := filepath.Join(w.t.TempDir(), r.name()+".log")
	admin := stage.FreeAddr(w.t)
	r.Process = stage.Start(w.t, log, w.binary, append([]string{
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=" + w.canaries["the key of AWS"], "AWS_EC2_METADATA_DISABLED=true",
		"RELAY_DATABASE_URL=" + strings.Replace(w.db.URL, w.database.Addr, through(history.OnDatabase), 1) + "&application_name=" + r.name(),
		"RELAY_TABLE=" + w.db.Table, "RELAY_SOURCE=" + w.db.Schema, "RELAY_ADMIN_ADDR=" + admin, "RELAY_LOG_FORMAT=text", "RELAY_LOG_LEVEL=debug",
		"RELAY_ROUTES=" + routes(), "RELAY_POLL_MAX=200ms", "RELAY_RETRY_BASE=200ms", "RELAY_RETRY_MAX=2s", "RELAY_BATCH_SIZE=50", "RELAY_WORKERS=2",
		"RELAY_LEASE=" + lease.String(), "RELAY_PUBLISH_TIMEOUT=" + publishTimeout.String(), "RELAY_DRAIN_TIMEOUT=" + drainTimeout.String(),
		"RELAY_KAFKA_BROKERS=" + through("kafka"),
		"RELAY_RABBITMQ_URL=" + strings.Replace(w.rabbitURL, w.rabbit.Addr, through("rabbitmq"), 1),
		"RELAY_SQS_ENDPOINT=http://" + through("sqs"), "RELAY_SQS_REGION=us-east-1",
	}, w.env...), "run")
	r.Admin = admin
}

func addresses(lines []*stage.Line) string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Addr)
	}
	return strings.Join(all, ",")
}

// begin starts relays and old workers, and has the kind that is replayed later delivered.
func (w *world) begin() {
	w.t.Helper()
	w.keepLedger()
	for _, r := range w.relays {
		w.launch(r)
	}
	w.startOldWorkers()
	w.enqueuePast()
	w.await(time.Minute, "the past is done", `SELECT count(*) = 0 FROM jobs WHERE status <> 'done'`)
}

// await waits until a query says true. The database may be away meanwhile.
func (w *world) await(limit time.Duration, what, sql string, args ...any) time.Duration {
	w.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	for {
		var yes bool
		err := w.db.Pool.QueryRow(ctx, sql, args...).Scan(&yes)
		if err == nil && yes {
			return time.Since(began)
		}
		w.checkAlive()
		select {
		case <-ctx.Done():
			w.t.Fatalf("seed %d: not within %v: %s (%v)\n%s", w.seed, limit, what, err, w.leftOver())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leftOver says what isn't done.
func (w *world) leftOver() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
	defer cancel()
	var text string
	err := w.db.Pool.QueryRow(ctx, `SELECT coalesce(string_agg(concat_ws(' ', kind, status, n, error), E'\n'), '') FROM (
		SELECT kind, status, count(*) AS n, max(last_error) AS error FROM jobs WHERE status <> 'done' GROUP BY 1, 2) AS l`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// checkAlive: no relay ends unless it is told to.
func (w *world) checkAlive() {
	w.t.Helper()
	for _, r := range w.relays {
		if r.Process != nil && !r.Alive() {
			w.t.Fatalf("seed %d: %s ended by itself: %v\n%s", w.seed, r.name(), r.Cmd.ProcessState, r.Tail())
		}
	}
}

// drain waits until nothing is left to do but what is dead.
func (w *world) drain() time.Duration {
	w.t.Helper()
	return w.await(drainBound, "the backlog drains", `SELECT count(*) = 0 FROM jobs WHERE status NOT IN ('done', 'dead')`)
}

// end stops the old workers, and the relays in an orderly way.
func (w *world) end() {
	w.t.Helper()
	w.stopOldWorkers()
	for _, r := range w.relays {
		w.overhear(r)
		r.Signal(syscall.SIGTERM)
	}
	for _, r := range w.relays {
		if code := r.Wait(drainTimeout + 10*time.Second); code != 0 {
			w.t.Errorf("%s: exit code %d at the end\n%s", r.name(), code, r.Tail())
		}
		w.keepLog(r)
	}
}

// overhear keeps what a relay tells those who ask.
func (w *world) overhear(r *relay) {
	for _, path := range []string{"/metrics", "/readyz", "/", "/api/status"} {
		_, body := r.Get(path)
		w.keep(path+" of "+r.name(), body)
	}
}

func (w *world) keepLog(r *relay) { w.keep("the log of "+r.name(), r.Output()) }

func (w *world) keep(name, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, history.Text{Name: name, Text: text})
}

// pool connects under a name of its own.
func (w *world) pool(name string, most int32) *pgxpool.Pool {
	w.t.Helper()
	config, err := pgxpool.ParseConfig(w.db.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	config.MaxConns = most
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(w.t.Context()), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}
