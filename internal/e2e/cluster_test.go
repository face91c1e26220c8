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
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.addrs(), ",")...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c.client = cl
	return c
}

// addrs are the brokers as a relay is given them.
func (c *cluster) addrs() string {
	var list []string
	for _, b := range c.brokers {
		list = append(list, b.Addr)
	}
	return strings.Join(list, ",")
}

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
// seconds, and nothing else comes of it.
func TestKafkaCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Run("B12TwoStopped", c.twoStopped)
	t.Run("B12TwoCrashed", c.twoCrashed)
	t.Run("LeadersMove", c.leadersMove)
	t.Run("OneCrashed", c.oneCrashed)
	t.Run("ControllerMoves", c.controllerMoves)
	t.Run("BootstrapIsGone", c.bootstrapIsGone)
}

// B12: two brokers stop, and the one that is left takes nothing, because two must have it. Nothing is done, nothing dies, no
// attempt is lost; when they are back every job arrives, once.
func (c *cluster) twoStopped(t *testing.T) {
	worst, duplicates := c.tooFew(t, func(i int) { c.brokers[i].Stop() })
	if worst != 0 {
		t.Errorf("a job has used up %d attempts while nobody took it", worst)
	}
	if duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// The same when two brokers crash, and with them most of the controllers: nobody can say any more that the replicas of the
// third are gone, so it takes messages and never has a word for them.
func (c *cluster) twoCrashed(t *testing.T) {
	worst, duplicates := c.tooFew(t, func(i int) { c.brokers[i].Kill() })
	if worst > 2 {
		t.Errorf("a job has used up %d attempts in one outage", worst)
	}
	t.Logf("%d attempts used up at most, %d duplicates", worst, duplicates)
}

func (c *cluster) tooFew(t *testing.T, end func(broker int)) (worst, duplicates int) {
	t.Helper()
	db, o := testdb.New(t), c.outlet(t, "few")
	p := start(t, db, o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "LEASE": "6s", "PUBLISH_TIMEOUT": "3s"}))
	s := newShop(t, db)
	s.trade(20, "a")
	s.drained(generous) // it is connected
	end(1)
	end(2)
	s.trade(100, "a")
	eventually(t, "the outage shows", func() error {
		if code, body := p.get("/readyz"); code != 200 || !strings.Contains(body, "degraded") {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
	hold(t, 5*time.Second)
	if got := s.statuses(); got["done"] != 20 || got["dead"] != 0 {
		t.Errorf("statuses while two brokers are away: %v, want 20 done and none dead", got)
	}
	worst = value[int](t, db, `SELECT max(attempts) FROM jobs WHERE status = 'ready'`)
	c.brokers[1].Start()
	c.brokers[2].Start()
	back := time.Now()
	s.drained(generous)
	t.Logf("drained %v after the brokers were back", time.Since(back).Round(time.Millisecond))
	duplicates = s.arrived(o, "a")
	if unsure := p.metric("relay_possible_duplicates_total"); float64(duplicates) > unsure {
		t.Errorf("%d duplicates, %v without a word from the broker", duplicates, unsure)
	}
	return worst, duplicates
}

// traffic is jobs under way while something happens to the brokers: of a kind that keeps the order of its keys, and of
// one that doesn't.
type traffic struct {
	*shop
	relay          *process
	ordered, loose outlet
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
		"LEASE":  "10s", "PUBLISH_TIMEOUT": "8s",
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
		late := value[int](tr.t, tr.db, `SELECT count(*) FROM jobs WHERE status <> 'done' AND created_at < clock_timestamp() - interval '1 second'`)
		new := value[int](tr.t, tr.db, `SELECT count(*) FROM jobs WHERE status = 'done' AND created_at > $1::timestamptz + interval '1 second'`, began)
		if late > 0 || new < 100 {
			return fmt.Errorf("%d jobs wait for over a second, %d new ones are done", late, new)
		}
		return nil
	})
}

// check ends the traffic and looks at what became of it: nothing lost, nothing dead, the order of keys kept. It returns the
// duplicates of each kind.
func (tr *traffic) check() (ordered, loose int) {
	t, db := tr.t, tr.db
	t.Helper()
	tr.stop()
	tr.drained(generous)
	jobs := value[int](t, db, `SELECT count(*) FROM jobs WHERE kind = 'o'`)
	h := historyOf(t, db, tr.ordered.read(t, func(all []seen) bool { return len(distinct(all)) >= jobs }))
	h.check(t, jobs)
	loose = tr.arrived(tr.loose, "a")
	const stood = `SELECT extract(epoch FROM max(gap))::float8 FROM
		(SELECT finished_at - lag(finished_at) OVER (ORDER BY finished_at) AS gap FROM jobs WHERE kind = $1) g`
	for _, kind := range []string{"o", "a"} {
		gap := value[float64](t, db, stood, kind)
		slowest := value[float64](t, db, `SELECT extract(epoch FROM max(finished_at - created_at))::float8 FROM jobs WHERE kind = $1`, kind)
		attempts := value[int](t, db, `SELECT max(attempts) FROM jobs WHERE kind = $1`, kind)
		t.Logf("kind %s: stood for %.1f s at most, the slowest job took %.1f s, at most %d attempts", kind, gap, slowest, attempts)
		if slowest > standing.Seconds() {
			t.Errorf("kind %s: a job took %.1f s", kind, slowest)
		}
	}
	t.Logf("%d ordered jobs, %d duplicates, %d of them late; %d others, %d duplicates; %v without a word", jobs, h.duplicates, h.late,
		len(tr.committed["a"]), loose, tr.relay.metric("relay_possible_duplicates_total"))
	return h.duplicates, loose
}

// standing is how long a fault of one broker may hold a job up: the cluster notices in nine seconds, a pause that began then
// is over in as many again, and the machine is busy.
const standing = 45 * time.Second

// The lead of every partition moves, again and again.
func (c *cluster) leadersMove(t *testing.T) {
	tr := c.traffic(t, nil)
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 6 {
		topics := []string{strings.TrimPrefix(tr.ordered.to, "kafka:"), strings.TrimPrefix(tr.loose.to, "kafka:")}
		if err := stage.MoveLeaders(t.Context(), c.client, rnd, topics...); err != nil {
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
	if code := tr.relay.terminate(generous); code != 0 {
		t.Errorf("exit code: %d", code)
	}
	tr.relay = start(t, tr.db, tr.settings())
	tr.through("a new one begins with those that are left")
	c.brokers[0].Start()
	tr.check()
}
