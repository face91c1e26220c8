package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// cluster is a Kafka of three brokers, each of them a controller as well. Messages of its topics must be on two.
type cluster struct {
	brokers []*services.Own
	client  *kgo.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{brokers: services.OwnKafkaCluster(t, 3)}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.list()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c.client = cl
	return c
}

func (c *cluster) list() (addrs []string) {
	for _, b := range c.brokers {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// addrs are the brokers as a relay is given them.
func (c *cluster) addrs() string { return strings.Join(c.list(), ",") }

// outlet makes a topic on all three.
func (c *cluster) outlet(t *testing.T, what string) outlet {
	t.Helper()
	topic, two := what+"-"+name(t), "2"
	if _, err := kadm.NewClient(c.client).CreateTopic(t.Context(), 6, 3, map[string]*string{"min.insync.replicas": &two}, topic); err != nil {
		t.Fatal(err)
	}
	return outlet{to: "kafka:" + topic, settings: settings{"KAFKA_BROKERS": c.addrs()}, read: func(t *testing.T, done func([]seen) bool) []seen {
		return readKafka(t, c.addrs(), topic, done)
	}}
}

// controller is the broker that is the active one.
func (c *cluster) controller(t *testing.T) (id int) {
	t.Helper()
	eventually(t, "there is a controller", func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if id, err = stage.Controller(ctx, c.client); err == nil && id < 1 {
			err = fmt.Errorf("it is %d", id)
		}
		return err
	})
	return id
}

// TestKafkaCluster takes brokers of three away, moves the lead, and moves the controller. What stands meanwhile stands for
// seconds, and nothing else comes of it. What takes longer belongs to the long run.
func TestKafkaCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Run("B12TwoStopped", c.twoStopped)
	t.Run("LeadersMove", c.leadersMove)
	if services.Long() {
		t.Run("B12TwoCrashed", c.twoCrashed)
		t.Run("OneCrashed", c.oneCrashed)
		t.Run("ControllerMoves", c.controllerMoves)
		t.Run("BootstrapIsGone", c.bootstrapIsGone)
	}
}

// B12: two brokers stop, and the one that is left takes nothing, because two must have it. Nothing is done, nothing dies, no
// attempt is lost; when they are back every job arrives, once.
func (c *cluster) twoStopped(t *testing.T) {
	worst, duplicates := c.tooFew(t, (*services.Own).Stop)
	if worst != 0 || duplicates != 0 {
		t.Errorf("%d attempts used up while nobody took the jobs, %d duplicates; want none", worst, duplicates)
	}
}

// The same when two brokers crash, and with them most of the controllers: nobody can say any more that the replicas of the
// third are gone, so it takes messages and never has a word for them. Each costs one attempt.
func (c *cluster) twoCrashed(t *testing.T) {
	worst, duplicates := c.tooFew(t, (*services.Own).Kill)
	if worst > 1 {
		t.Errorf("a job has used up %d attempts in one outage", worst)
	}
	t.Logf("%d attempts used up at most, %d duplicates", worst, duplicates)
}

// tooFew takes two brokers away, enqueues jobs for every partition, and brings the brokers back. It returns how many attempts
// a job had used up by then, and how many duplicates came in the end.
func (c *cluster) tooFew(t *testing.T, end func(broker *services.Own)) (worst, duplicates int) {
	t.Helper()
	db, o := testdb.New(t), c.outlet(t, "few")
	p := start(t, db, o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "LEASE": "12s", "PUBLISH_TIMEOUT": "6s"}))
	s := newShop(t, db)
	s.trade(20, "a")
	s.drained(generous) // it is connected
	end(c.brokers[1])
	end(c.brokers[2])
	if err := s.transaction("a", 100, false, rand.New(rand.NewPCG(5, 5))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the outage shows", func() error {
		if code, body := p.get("/readyz"); code != 200 || !strings.Contains(body, "degraded") {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
	hold(t, 7*time.Second)
	meanwhile := s.statuses()
	worst = value[int](t, db, `SELECT coalesce(max(attempts), 0) FROM jobs WHERE status = 'ready'`)
	c.brokers[1].Start()
	back := time.Now() // two are enough
	c.brokers[2].Start()
	if meanwhile["done"] != 20 || meanwhile["dead"] != 0 {
		t.Fatalf("statuses while two brokers were away: %v, want 20 done and none dead", meanwhile)
	}
	s.drained(generous)
	t.Logf("drained within %v of the second broker's return", time.Since(back).Round(time.Millisecond))
	duplicates = s.arrived(o, "a")
	if n := p.doubtful(); float64(duplicates) > n {
		t.Errorf("%d duplicates, %v jobs without a word from the broker", duplicates, n)
	}
	return worst, duplicates
}

// doubtful is how many jobs may come again: a broker had no word for them, or their lease was lost meanwhile.
func (p *process) doubtful() float64 {
	p.t.Helper()
	return p.metric("relay_possible_duplicates_total") + p.metric("relay_lost_leases_total")
}

// traffic is jobs under way while something happens to the brokers: of a kind that keeps the order of its keys, and of
// one that doesn't.
type traffic struct {
	*shop
	relay          *process
	ordered, loose outlet
	doubtful       float64 // jobs that may come again, as relays before this one counted them
	stop           func()
}

func (c *cluster) traffic(t *testing.T, more settings) *traffic {
	t.Helper()
	db := testdb.New(t)
	tr := &traffic{shop: newShop(t, db), ordered: c.outlet(t, "ordered"), loose: c.outlet(t, "loose")}
	tr.relay = start(t, db, tr.settings().with(more))
	stopLoose := tr.flow(100, "a")
	ctx, cancel := context.WithCancel(t.Context())
	var producer sync.WaitGroup
	producer.Go(func() {
		rnd := rand.New(rand.NewPCG(3, 3))
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if err := tr.enqueueOrdered(rnd); err != nil {
				t.Errorf("enqueue: %v", err)
				return
			}
		}
	})
	tr.stop = func() { stopLoose(); cancel(); producer.Wait() }
	t.Cleanup(tr.stop)
	tr.through("traffic flows")
	return tr
}

func (tr *traffic) settings() settings {
	return tr.loose.settings.with(settings{
		"ROUTES": fmt.Sprintf(`[{kind: o, to: ["%s"], order: key}, {kind: a, to: ["%s"]}]`, tr.ordered.to, tr.loose.to),
	})
}

func (tr *traffic) enqueueOrdered(rnd *rand.Rand) error {
	jobs := make([]outbox.Job, 4)
	for i := range jobs {
		jobs[i] = outbox.Job{Kind: "o", Key: fmt.Sprint("key-", rnd.IntN(50)), Payload: 1}
	}
	return pgx.BeginFunc(context.Background(), tr.db.Pool, func(tx pgx.Tx) error {
		_, err := tr.outbox.EnqueueOrdered(context.Background(), tx, jobs...)
		return err
	})
}

// through waits until what is enqueued from now on has been delivered for a second: all keys, so all partitions.
func (tr *traffic) through(what string) {
	tr.t.Helper()
	began := value[time.Time](tr.t, tr.db, `SELECT clock_timestamp()`)
	eventually(tr.t, what, func() error {
		if n := value[int](tr.t, tr.db, `SELECT count(*) FROM jobs WHERE status = 'dead'`); n > 0 {
			tr.t.Fatalf("%d jobs are dead", n)
		}
		late := value[int](tr.t, tr.db, `SELECT count(*) FROM jobs WHERE status <> 'done' AND created_at < clock_timestamp() - interval '1 second'`)
		new := value[int](tr.t, tr.db, `SELECT count(*) FROM jobs WHERE status = 'done' AND created_at > $1::timestamptz + interval '1 second'`, began)
		if late > 0 || new < 100 {
			return fmt.Errorf("%d jobs wait for over a second, %d new ones are done", late, new)
		}
		return nil
	})
}

// check ends the traffic and looks at what became of it: nothing lost, nothing dead, the order of keys kept, no job held up
// for long, and each duplicate explained.
func (tr *traffic) check() {
	t, db := tr.t, tr.db
	t.Helper()
	tr.stop()
	tr.drained(generous)
	tr.doubtful += tr.relay.doubtful()
	jobs := value[int](t, db, `SELECT count(*) FROM jobs WHERE kind = 'o'`)
	ordered := tr.ordered.read(t, func(all []seen) bool { return len(distinct(all)) >= jobs })
	historyOf(t, db, ordered).check(t, jobs)
	tr.explain(ordered, tr.received(tr.loose, "a"))
	for _, kind := range []string{"o", "a"} {
		stood := value[float64](t, db, `SELECT extract(epoch FROM max(gap))::float8 FROM
			(SELECT finished_at - lag(finished_at) OVER (ORDER BY finished_at) AS gap FROM jobs WHERE kind = $1) g`, kind)
		slowest := value[float64](t, db, `SELECT extract(epoch FROM max(finished_at - created_at))::float8 FROM jobs WHERE kind = $1`, kind)
		t.Logf("kind %s: stood for %.1f s at most, the slowest job took %.1f s", kind, stood, slowest)
		if slowest > standing.Seconds() {
			t.Errorf("kind %s: a job took %.1f s, want %v at most", kind, slowest, standing)
		}
	}
}

// explain holds duplicates against their reasons. One of another attempt takes a broker that had no word for the first. One of
// the same attempt was sent twice at once, because its leader stepped down; where order is kept the broker knows it again.
func (tr *traffic) explain(ordered, loose []seen) {
	tr.t.Helper()
	twice := func(all []seen) (n int) {
		had := map[[2]string]bool{}
		for _, m := range all {
			at := [2]string{m.id, m.attempt}
			if had[at] {
				n++
			}
			had[at] = true
		}
		return n
	}
	again := len(ordered) + len(loose) - len(distinct(ordered)) - len(distinct(loose)) - twice(ordered) - twice(loose)
	if float64(again) > tr.doubtful {
		tr.t.Errorf("%d messages of a further attempt, %v jobs without a word from the broker", again, tr.doubtful)
	}
	if n := twice(ordered); n > 0 {
		tr.t.Errorf("%d messages of the ordered kind came twice in one attempt", n)
	}
	tr.t.Logf("%d and %d messages: %d of a further attempt (%v jobs without a word), %d twice in one", len(ordered), len(loose), again, tr.doubtful, twice(loose))
}

// standing is how long a fault of one broker may hold a job up: the cluster notices in nine seconds, a pause that began then
// is over in as many again, and the machine may be busy.
const standing = time.Minute

// The lead of every partition moves, again and again.
func (c *cluster) leadersMove(t *testing.T) {
	tr := c.traffic(t, nil)
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 6 {
		topics := []string{strings.TrimPrefix(tr.ordered.to, "kafka:"), strings.TrimPrefix(tr.loose.to, "kafka:")}
		ctx, cancel := context.WithTimeout(t.Context(), generous)
		order, err := stage.MoveLeaders(ctx, c.client, rnd, topics...)
		if err == nil {
			err = stage.AwaitLeaders(ctx, c.client, c.list(), order)
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		tr.through("it goes on with other leaders")
	}
	tr.check()
}

// One broker crashes: the others go on before it is back.
func (c *cluster) oneCrashed(t *testing.T) {
	tr := c.traffic(t, nil)
	victim := c.brokers[c.controller(t)%3] // not the controller itself
	victim.Kill()
	tr.through("it goes on with two brokers")
	victim.Start()
	tr.through("it goes on with three brokers")
	tr.check()
}

// The active controller stops, and another broker takes over.
func (c *cluster) controllerMoves(t *testing.T) {
	tr := c.traffic(t, nil)
	was := c.controller(t)
	c.brokers[was-1].Stop()
	if now := c.controller(t); now == was {
		t.Errorf("broker %d still is the controller", was)
	}
	tr.through("it goes on with another controller")
	c.brokers[was-1].Start()
	tr.through("it goes on with three brokers")
	tr.check()
}

// A relay that was given one broker goes on when that one has gone; one that is given all three starts without it.
func (c *cluster) bootstrapIsGone(t *testing.T) {
	tr := c.traffic(t, settings{"KAFKA_BROKERS": c.brokers[0].Addr})
	c.brokers[0].Kill()
	tr.through("it goes on by the brokers that it has heard of")
	tr.doubtful = tr.relay.doubtful()
	if code := tr.relay.terminate(generous); code != 0 {
		t.Errorf("exit code: %d", code)
	}
	tr.relay = start(t, tr.db, tr.settings())
	tr.through("a new one begins with those that are left")
	c.brokers[0].Start()
	tr.check()
}
