package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

// past is a topic with the messages of a kind that is replayed, beside one with live traffic.
type past struct {
	t      *testing.T
	db     *testdb.DB
	env    settings
	topic  string
	live   *live
	broker string
}

// A kind's whole history goes out once more beside live traffic, through kills of the replay and of a relay: each job
// once again, under its own id, but for what was in flight at the kill. Live traffic is measured with and without the
// replay, in turns.
func TestReplay(t *testing.T) {
	t.Parallel()
	jobs, turns, turn := 30_000, 2, 3*time.Second
	if services.Long() {
		jobs, turns, turn = 100_000, 10, 6*time.Second
	}
	p := newPast(t)
	relays := []*process{startBinary(t, plain, p.db, p.env), startBinary(t, plain, p.db, p.env)}
	p.db.Exec(t, `INSERT INTO `+p.db.Table+` (kind, key, payload) SELECT 'past', 'k' || g % 100, jsonb_build_object('n', g, 'pad', repeat('x', 400)) FROM generate_series(1, $1::int) g`, jobs)
	p.done("the history is done", jobs)

	stop := p.live.run()
	var without, with, ratios []float64
	for range turns {
		without = append(without, p.live.p99(p.live.during(turn)))
		r := p.replay()
		beside := p.live.during(turn)
		if code := r.terminate(generous); code != 1 {
			t.Errorf("exit code of a replay that was stopped: got %d, want 1\n%s", code, r.tail())
		}
		with = append(with, p.live.p99(beside))
		ratios = append(ratios, with[len(with)-1]/without[len(without)-1])
	}
	r := p.replay()
	p.further("the replay is in the middle", jobs/20)
	r.kill()
	inFlight := 0
	r = p.replay()
	eventually(t, "a relay has copies in hand", func() error {
		if inFlight = p.running(); inFlight == 0 {
			return errors.New("none is running")
		}
		return nil
	})
	relays[0].kill()
	inFlight = max(inFlight, p.running())
	relays[0] = startBinary(t, plain, p.db, p.env)
	<-r.ended
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code of the replay: %d\n%s", code, r.tail())
	}
	p.done("the copies are done", 2*jobs)
	stop()
	p.check(jobs, inFlight)
	t.Logf("p99 from commit to the broker, in turns: without the replay %.1f ms, with it %.1f ms; the ratio's median is %.2f", without, with, median(ratios))
	t.Logf("%d messages were in flight at the kill", inFlight)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// Copies of an ordered kind arrive in the order of their originals within each key.
func TestReplayKeepsTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	const jobs = 3000
	p := newPast(t)
	p.env["ROUTES"] = fmt.Sprintf(`[{kind: past, to: ["kafka:%s"], order: key}]`, p.topic)
	startBinary(t, plain, p.db, p.env)
	startBinary(t, plain, p.db, p.env)
	p.db.Exec(t, `INSERT INTO `+p.db.Table+` (kind, key, payload) SELECT 'past', 'k' || g % 20, to_jsonb(g) FROM generate_series(1, $1::int) g`, jobs)
	p.done("the history is done", jobs)
	r := p.replay()
	<-r.ended
	p.done("the copies are done", 2*jobs)
	last, n := map[string]int{}, 0
	consume(t, p.broker, p.topic, quiet, func(r *kgo.Record) bool {
		key, at := string(r.Key), 0
		if _, err := fmt.Sscan(string(r.Value), &at); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "relay-replay" }) {
			if n++; at <= last[key] {
				t.Errorf("%d of %s came behind %d", at, key, last[key])
			}
			last[key] = at
		}
		return n == jobs
	})
	if n != jobs {
		t.Errorf("%d copies, want %d", n, jobs)
	}
}

func newPast(t *testing.T) *past {
	t.Helper()
	p := &past{t: t, db: testdb.New(t), broker: services.Kafka(t)}
	o := kafkaOutlet(t, "")
	p.topic = strings.TrimPrefix(o.to, "kafka:")
	p.live = newLive(t, p.db, p.broker, p.topic+"-live")
	p.env = o.settings.with(settings{
		"ROUTES": routes("past", []string{o.to}, "live", []string{"kafka:" + p.live.topic}), "LEASE": "12s", "PUBLISH_TIMEOUT": "10s", "BATCH_SIZE": "100",
	})
	return p
}

// replay starts the command, always the same.
func (p *past) replay() *process {
	p.t.Helper()
	return open(p.t, plain, []string{"RELAY_DATABASE_URL=" + p.db.URL, "RELAY_TABLE=" + p.db.Table, "RELAY_LOG_FORMAT=text"}, "replay", "--kind", "past", "--since", "24h")
}

func (p *past) done(what string, n int) {
	p.t.Helper()
	within(p.t, 3*generous, what, func() error {
		if got := value[int](p.t, p.db, `SELECT count(*) FROM `+p.db.Table+` WHERE kind = 'past' AND status = 'done'`); got != n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

func (p *past) copies() int {
	return value[int](p.t, p.db, `SELECT count(*) FROM `+p.db.Table+` WHERE replay_of IS NOT NULL`)
}

// further waits for n more copies.
func (p *past) further(what string, n int) {
	p.t.Helper()
	n += p.copies()
	eventually(p.t, what, func() error {
		if got := p.copies(); got < n {
			return fmt.Errorf("%d of %d copies", got, n)
		}
		return nil
	})
}

func (p *past) running() int {
	return value[int](p.t, p.db, `SELECT count(*) FROM `+p.db.Table+` WHERE kind = 'past' AND status = 'running'`)
}

// check holds what the broker has against the table.
func (p *past) check(jobs, inFlight int) {
	p.t.Helper()
	if n := value[int](p.t, p.db, `SELECT count(DISTINCT replay_of) FROM `+p.db.Table+` WHERE replay_of IS NOT NULL`); n != jobs || p.copies() != jobs {
		p.t.Errorf("%d copies of %d jobs, want one of each of %d", p.copies(), n, jobs)
	}
	first, again := map[string]int{}, map[string]int{}
	n := 0
	consume(p.t, p.broker, p.topic, quiet, func(r *kgo.Record) bool {
		id, copied := "", false
		for _, h := range r.Headers {
			switch h.Key {
			case "relay-id":
				id = string(h.Value)
			case "relay-replay":
				copied = true
			}
		}
		if n++; copied {
			again[id]++
		} else {
			first[id]++
		}
		return len(first) == jobs && len(again) == jobs
	})
	if len(first) != jobs || len(again) != jobs {
		p.t.Errorf("%d jobs arrived and %d once more, want %d each", len(first), len(again), jobs)
	}
	for id := range again {
		if first[id] != 1 {
			p.t.Errorf("%s arrived %d times before it was replayed", id, first[id])
		}
	}
	if twice := n - len(first) - len(again); twice > inFlight {
		p.t.Errorf("%d duplicates with %d in flight at the kill", twice, inFlight)
	}
}

// consume reads a topic until it is done and nothing has come for so long, or until nothing has come for very long.
func consume(t *testing.T, broker, topic string, quiet time.Duration, done func(*kgo.Record) bool) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for last, all := time.Now(), false; time.Since(last) < generous && (!all || time.Since(last) < quiet); {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		got := cl.PollFetches(ctx)
		got.EachRecord(func(r *kgo.Record) { last, all = time.Now(), done(r) })
		got.EachError(func(_ string, partition int32, err error) {
			if ctx.Err() == nil {
				t.Logf("%s/%d: %v", topic, partition, err)
			}
		})
		cancel()
	}
}

// live is traffic at a steady rate, a job a transaction, whose way from commit to the broker is timed: the topic stamps
// what is appended with the broker's time, and all clocks here are one.
type live struct {
	t      *testing.T
	db     *testdb.DB
	broker string
	topic  string

	mu        sync.Mutex
	committed map[string]time.Time
	begun     []string // ids in the order of their commits
}

const liveRate = 200

func newLive(t *testing.T, db *testdb.DB, broker, topic string) *live {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	stamp := "LogAppendTime"
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, map[string]*string{"message.timestamp.type": &stamp}, topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = kadm.NewClient(cl).DeleteTopic(context.Background(), topic)
		cl.Close()
	})
	return &live{t: t, db: db, broker: broker, topic: topic, committed: map[string]time.Time{}}
}

// run enqueues until it is stopped.
func (l *live) run() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var writers sync.WaitGroup
	slots := make(chan struct{}, 8)
	writers.Go(func() {
		tick := time.NewTicker(time.Second / liveRate)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			slots <- struct{}{}
			writers.Go(func() { defer func() { <-slots }(); l.enqueue() })
		}
	})
	stop = sync.OnceFunc(func() { cancel(); writers.Wait() })
	l.t.Cleanup(stop)
	return stop
}

func (l *live) enqueue() {
	rows, _ := l.db.Pool.Query(context.Background(), `WITH job AS (INSERT INTO `+l.db.Table+` (kind, payload) VALUES ('live', '{"n": 1}') RETURNING id) SELECT id FROM job CROSS JOIN (SELECT count(*) FROM relay_notify()) woken`)
	id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		l.t.Errorf("enqueue: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprint(l.db.Schema, "/", id)
	l.committed[name] = time.Now()
	l.begun = append(l.begun, name)
}

// during returns the jobs that are committed in a while.
func (l *live) during(while time.Duration) map[string]bool {
	mark := func() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.begun) }
	from := mark()
	time.Sleep(while)
	jobs := map[string]bool{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.begun[from:] {
		jobs[id] = true
	}
	return jobs
}

// p99 waits for the jobs to arrive and returns it in milliseconds.
func (l *live) p99(watched map[string]bool) float64 {
	l.t.Helper()
	var ms []float64
	consume(l.t, l.broker, l.topic, 0, func(r *kgo.Record) bool {
		id := ""
		for _, h := range r.Headers {
			if h.Key == "relay-id" {
				id = string(h.Value)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if watched[id] {
			delete(watched, id)
			ms = append(ms, max(0, float64(r.Timestamp.Sub(l.committed[id]).Microseconds())/1000))
		}
		return len(watched) == 0
	})
	if len(watched) > 0 || len(ms) == 0 {
		l.t.Fatalf("%d live jobs have not arrived, %d have", len(watched), len(ms))
	}
	slices.Sort(ms)
	return ms[len(ms)*99/100]
}
