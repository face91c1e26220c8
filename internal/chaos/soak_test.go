package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
)

const (
	warmUp   = 10 * time.Second       // at the usual rate, behind a backlog, so that each lane has had full batches
	backlog  = 1500                   // jobs that wait at the start
	retained = 5 * time.Second        // what is finished, so that the tables would grow if nothing cleaned up
	idle     = 70 * time.Second       // until clients have closed what they don't use
	long     = 5 * time.Minute        // a run in which autovacuum comes by a few times: its tables are compared
	bulk     = 15                     // jobs
	bulkPace = 100 * time.Millisecond // beside what the other producers make
)

// The same world for ten minutes at a steady rate, and what must not add up: two of the relays live through every fault
// and end with the memory, goroutines, files and connections with which they began; the tables stay as large as a minute's work;
// no statement of any relay takes over a second, and none leaves a transaction open while it talks to a broker.
//
// It isn't parallel to the other run of this package: a second set of servers would only make the machine late.
func TestSoak(t *testing.T) {
	n, span := seed(), soakSpan()
	t.Logf("seed %d: go test ./internal/chaos -run TestSoak -args -seed=%d -soak=%v", n, n, span)
	s := newSoak(t, n, span)
	begin := s.begin()
	s.committed.Store(0)
	s.warmed = len(s.transactions)
	stop := s.trade()
	faults, began := rand.New(rand.NewPCG(n, 5)), time.Now()
	s.strike([]*fault{s.answerLate()})
	for time.Since(began) < span {
		s.strike(s.choose(faults))
	}
	stop()
	took, lasted := s.drain(), time.Since(began)
	s.rest()
	s.compare(begin)
	s.end()
	s.stop()
	t.Logf("seed %d: %v at %d jobs/s, %d faults, drained in %v after the last one", n, lasted.Round(time.Second),
		int(float64(s.jobs())/lasted.Seconds()), len(s.faults), took.Round(100*time.Millisecond))
	s.sizes.judge(s)
	s.watch.judge(s.world)
}

func soakSpan() time.Duration {
	switch {
	case *soakFlag > 0:
		return *soakFlag
	case services.Long():
		return 10 * time.Minute
	default:
		return 30 * time.Second
	}
}

// soak is a world that is watched.
type soak struct {
	*world
	span      time.Duration
	watch     *watch
	sizes     *sizes
	peaks     peaks
	warmed    int          // transactions before the faults
	committed atomic.Int64 // jobs that producers of the soak's own made
	stop      func()       // those who watch
}

// survivors are the relays that no fault ends: the first ones.
const survivors = relayCount - 1

func newSoak(t *testing.T, seed uint64, span time.Duration) *soak {
	t.Helper()
	s := &soak{span: span, world: newWorld(t, seed, 1, watched...), watch: newWatch(), sizes: &sizes{}}
	if *relayFlag == "" { // memory under the race detector is the detector's
		s.binary = t.TempDir() + "/relay"
		if err := stage.Build(s.binary); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{"RELAY_RETENTION=" + retained.String(), "RELAY_RETENTION_DEAD=" + retained.String(), "RELAY_LOG_LEVEL=info"}
	s.db.Exec(t, `CREATE EXTENSION pgstattuple`)
	return s
}

// begin starts everything, lets every lane work, and returns what the survivors need when there is nothing to do.
func (s *soak) begin() (quiet [survivors]figures) {
	s.t.Helper()
	for kind := range kinds {
		s.db.Exec(s.t, `INSERT INTO jobs (kind, key, payload, headers) SELECT $1, 'key-' || g % 12, '{}', CASE $1 WHEN 'poison' THEN '{"nothing": null}'::jsonb ELSE '{}' END
			FROM generate_series(1, $2::int) g`, kind, backlog/len(kinds))
	}
	for _, r := range s.relays {
		s.launch(r)
	}
	s.startOldWorkers()
	stop := s.trade()
	s.hold(warmUp)
	stop()
	s.drain()
	s.rest()
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	all.Go(func() { s.watch.run(ctx, s.pool("watch", 1)) })
	all.Go(func() { s.sizes.run(ctx, s.world) })
	s.stop = func() { cancel(); all.Wait() }
	s.t.Cleanup(s.stop)
	for i := range quiet {
		quiet[i] = s.quiet(s.relays[i])
	}
	all.Go(func() { s.follow(ctx) })
	return quiet
}

// decided discards the dead jobs that hold their keys, as people do; retention leaves them.
const decided = `DELETE FROM jobs AS j USING relay_closed_keys AS c WHERE c.job = j.id AND j.status = 'dead' AND j.kind LIKE '%ordered'`

// rest waits until retention has removed what was finished, and in a long run until clients have closed what they don't use.
func (s *soak) rest() {
	s.t.Helper()
	s.db.Exec(s.t, decided)
	s.await(time.Minute, "what is finished goes", `SELECT NOT EXISTS (SELECT FROM jobs WHERE lease_token IS NOT NULL) AND NOT EXISTS (SELECT FROM relay_closed_keys)`)
	if s.span >= long {
		s.hold(idle)
	}
}

// jobs is how many were committed after the warm-up.
func (s *soak) jobs() int {
	n := int(s.committed.Load())
	for _, tx := range s.transactions[s.warmed:] {
		if tx.Fate == history.Committed {
			n += len(tx.IDs)
		}
	}
	return n
}

// trade starts the producers, one that makes many jobs at once, one whose jobs die and close their keys, somebody who decides
// about these, and one that removes what old workers have finished, which relays leave alone.
func (s *soak) trade() (stop func()) {
	end := s.world.trade()
	ctx, cancel := context.WithCancel(s.t.Context())
	pool := s.pool(history.Old, 2)
	var all sync.WaitGroup
	for every, sql := range map[time.Duration]string{
		200 * time.Millisecond: `INSERT INTO jobs (kind, key, payload, headers) VALUES ('rabbit-ordered', gen_random_uuid()::text, '{}', '{"nothing": null}')`,
		bulkPace:               fmt.Sprintf(`INSERT INTO jobs (kind, key, payload) SELECT 'kafka', 'key-' || g, '{}' FROM generate_series(1, %d) AS g`, bulk),
		time.Second:            decided,
		5 * time.Second:        `DELETE FROM jobs WHERE kind = 'shared' AND status = 'done' AND lease_token IS NULL`,
	} {
		all.Go(func() {
			repeat(ctx, every, func(ctx context.Context) (bool, error) {
				tag, err := pool.Exec(ctx, sql)
				if tag.Insert() {
					s.committed.Add(tag.RowsAffected())
				}
				return false, err
			})
		})
	}
	return func() { end(); cancel(); all.Wait() }
}

// answerLate has all brokers answer late, so that a transaction that waits for one would be seen in the shortest run.
func (s *soak) answerLate() *fault {
	return &fault{name: "brokers answer late", on: "brokers", lasts: 5 * time.Second,
		begin: func() { s.answers(2 * time.Second) }, end: func() { s.answers(0) }}
}

// choose makes the next fault, or two. The survivors are stopped at times, not ended.
func (s *soak) choose(rnd *rand.Rand) []*fault { return oneOrTwo(rnd, s.any) }

func (s *soak) any(rnd *rand.Rand) *fault {
	switch rnd.IntN(10) {
	case 0:
		return s.kill(s.relays[survivors])
	case 1:
		return s.restart(s.relays[survivors])
	case 2:
		return s.pause(s.relays[rnd.IntN(relayCount)], time.Duration(rnd.IntN(2500))*time.Millisecond)
	case 3, 4, 5, 6:
		return s.serverFault(rnd)
	default:
		return s.lineFault(rnd)
	}
}
