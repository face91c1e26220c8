package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// fanOut is a relay that sends each job to three brokers, of which one hears nothing any more.
type fanOut struct {
	t      *testing.T
	db     *testdb.DB
	all    everywhere
	silent string // the broker
	line   *line  // to it
	shop   *shop
	env    settings
	relay  *process
}

// Sizes of a fan-out: the relay holds one batch at a time.
const fanBatch, fanJobs, fanWarmUp = 20, 50, 10

// eachSilent runs a test with each broker as the silent one, from the moment at which the relay has sent some jobs to all three.
func eachSilent(t *testing.T, more settings, test func(*fanOut)) {
	t.Helper()
	for broker, open := range map[string]func(*testing.T) *line{"kafka": kafkaLine, "rabbitmq": rabbitLine, "sqs": sqsLine} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			f := &fanOut{t: t, db: testdb.New(t), silent: broker, line: open(t)}
			f.all = onEveryBrokerBut(t, broker, f.line.addr)
			f.env = f.all.env.with(settings{"WORKERS": "1", "BATCH_SIZE": fmt.Sprint(fanBatch)}).with(more)
			f.shop = newShop(t, f.db)
			f.relay = start(t, f.db, f.env)
			f.shop.trade(fanWarmUp, "all")
			f.shop.drained(generous)
			f.line.swallow()
			if err := f.shop.transaction("all", fanJobs, false, rand.New(rand.NewPCG(6, 6))); err != nil {
				t.Fatal(err)
			}
			test(f)
		})
	}
}

// killAndHeal ends the relay as a crash would, lets the silent broker hear again, and has another relay do the rest. It
// returns the message ids of the jobs that the killed one held.
func (f *fanOut) killAndHeal() (held map[string]bool) {
	f.t.Helper()
	f.relay.kill()
	held = map[string]bool{}
	for _, id := range testdb.Column[string](f.t, f.db, `SELECT id::text FROM jobs WHERE status = 'running'`) {
		held[f.db.Schema+"/"+id] = true
	}
	f.line.heal()
	f.relay = start(f.t, f.db, f.env)
	f.shop.drained(generous)
	return held
}

// B24: a relay is killed when two brokers have its batch and the third has heard nothing of it. Every broker gets every job;
// those two get one more of each that the killed relay held, the third gets none twice.
func TestB24KilledBetweenTwoPublishes(t *testing.T) {
	t.Parallel()
	eachSilent(t, settings{"LEASE": "12s", "PUBLISH_TIMEOUT": "10s"}, func(f *fanOut) {
		for broker, o := range f.all.outlets {
			if broker == f.silent {
				continue
			}
			eventually(f.t, broker+" has the batch", func() error {
				if n := o.waiting(f.t); n != fanWarmUp+fanBatch {
					return fmt.Errorf("it has %d messages, want %d", n, fanWarmUp+fanBatch)
				}
				return nil
			})
		}
		held := f.killAndHeal()
		if len(held) != fanBatch {
			f.t.Fatalf("the killed relay held %d jobs, want %d", len(held), fanBatch)
		}
		if n := value[int](f.t, f.db, `SELECT count(*) FROM jobs WHERE attempts = 2`); n != fanBatch {
			f.t.Fatalf("%d jobs were tried twice, want the %d that the killed relay held", n, fanBatch)
		}
		for broker, o := range f.all.outlets {
			want := map[string]int{}
			if broker != f.silent {
				for id := range held {
					want[id] = 1
				}
			}
			if got := extra(f.shop.received(o, "all")); !maps.Equal(got, want) {
				f.t.Errorf("%s: extra copies of %v, want one of each of %v", broker, got, slices.Sorted(maps.Keys(want)))
			}
		}
	})
}

// B24: the same, but the relay has given the third broker up and noted who has each job. Nobody gets anything twice, but where
// a busy broker had no word in time.
func TestB24KilledWhenTwoAreNoted(t *testing.T) {
	t.Parallel()
	eachSilent(t, settings{"LEASE": "8s", "PUBLISH_TIMEOUT": "5s"}, func(f *fanOut) {
		eventually(f.t, "two of three are noted", func() error {
			if n := value[int](f.t, f.db, `SELECT count(*) FROM jobs WHERE cardinality(delivered) = 2`); n != fanJobs {
				return fmt.Errorf("for %d jobs, want %d", n, fanJobs)
			}
			return nil
		})
		doubtful := map[string]float64{}
		for broker := range f.all.outlets {
			if broker != f.silent { // which has heard nothing of what it has no word for
				doubtful[broker] = f.relay.metric("relay_possible_duplicates_total", "sink="+broker)
			}
		}
		f.killAndHeal()
		for broker, o := range f.all.outlets {
			doubtful[broker] += f.relay.metric("relay_possible_duplicates_total", "sink="+broker)
			if got := extra(f.shop.received(o, "all")); float64(len(got)) > doubtful[broker] {
				f.t.Errorf("%s: extra copies of %v, %v jobs without a word", broker, got, doubtful[broker])
			}
		}
	})
}
