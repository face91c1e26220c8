package claim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// ordered returns a queue whose kinds keep the order of their keys.
func ordered(t testing.TB, db *testdb.DB, o Options, order Order) *Queue {
	t.Helper()
	order.Keys = true
	q := newQueue(t, db, o)
	q.OrderOf(func(string) Order { return order })
	return q
}

// keyed adds n jobs for each of the keys, in turn, and returns their ids by key.
func keyed(t testing.TB, db *testdb.DB, n int, keys ...string) map[string][]int64 {
	t.Helper()
	ids := map[string][]int64{}
	for range n {
		for _, k := range keys {
			ids[k] = append(ids[k], testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload) VALUES ('k', $1, '1') RETURNING id`, k))
		}
	}
	return ids
}

func byKey(leases []Lease) map[string][]int64 {
	got := map[string][]int64{}
	for _, l := range leases {
		key := "NULL"
		if l.Key != nil {
			key = *l.Key
		}
		got[key] = append(got[key], l.ID)
	}
	return got
}

// What holds a key: its oldest unfinished job, whatever keeps that from being claimed. Another key isn't touched by it.
func TestKeyIsHeldByItsOldestJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		order     Order
		want      int // place of the first job claimed, -1 none
	}{
		{"nothing", ``, Order{}, 0},
		{"scheduled", `UPDATE jobs SET run_at = now() + interval '1 hour' WHERE id = $1`, Order{}, -1},
		{"claimed", `UPDATE jobs SET status = 'running', lease_token = 1, leased_until = now() + interval '1 hour' WHERE id = $1`, Order{}, -1},
		{"an old worker's", `UPDATE jobs SET status = 'running', leased_until = now() + interval '1 hour' WHERE id = $1`, Order{}, -1},
		{"dead", `UPDATE jobs SET status = 'dead' WHERE id = $1`, Order{}, -1},
		{"dead, skipped", `UPDATE jobs SET status = 'dead' WHERE id = $1`, Order{Skip: true}, 1},
		{"done", `UPDATE jobs SET status = 'done' WHERE id = $1`, Order{}, 1},
		{"deleted", `DELETE FROM jobs WHERE id = $1`, Order{}, 1},
		{"larger priority behind it", `UPDATE jobs SET priority = 9 WHERE id > $1`, Order{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ids := keyed(t, db, 3, "held", "other")
			if c.sql != "" {
				db.Exec(t, c.sql, ids["held"][0])
			}
			got := byKey(claim(t, ordered(t, db, Options{}, c.order)))
			if !slices.Equal(got["other"], ids["other"]) {
				t.Errorf("other: claimed %v, want %v", got["other"], ids["other"])
			}
			var want []int64
			if c.want >= 0 {
				want = ids["held"][c.want:]
			}
			if !slices.Equal(got["held"], want) {
				t.Errorf("held: claimed %v, want %v", got["held"], want)
			}
		})
	}
}

// More keys that are held than one walk looks at don't hide those behind them, wherever the walk begins.
func TestHeldKeysHideNoOthers(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'k', 'held' || g, '1', now() + interval '1 hour' FROM generate_series(1, 500) g`)
	q := ordered(t, db, Options{BatchSize: 10}, Order{})
	for _, key := range []string{"", "zz", "held3 ", "zz", ""} {
		id := keyed(t, db, 1, key)[key][0]
		eventually(t, "the job of "+key+" is claimed", func() bool {
			got := claim(t, q)
			settle(t, q, got, Outcome{Verdict: Done})
			return len(got) == 1 && got[0].ID == id
		})
	}
}

// A long key among short ones: each claim serves all of them.
func TestLongKeyDoesntStarveOthers(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', 'long', '1' FROM generate_series(1, 5000) g`)
	ids := keyed(t, db, 2, "a", "z")
	got := byKey(claim(t, ordered(t, db, Options{BatchSize: 100}, Order{})))
	if !slices.Equal(got["a"], ids["a"]) || !slices.Equal(got["z"], ids["z"]) || len(got["long"]) < 30 {
		t.Errorf("claimed %d of the long key, %v, %v", len(got["long"]), got["a"], got["z"])
	}
	if alone := byKey(claim(t, ordered(t, db, Options{BatchSize: 100}, Order{Run: 7}))); len(alone) > 0 {
		t.Errorf("the keys are out, but %v was claimed", alone)
	}
}

// Jobs without a key are claimed as ever, also when they come in below the floor behind many that have one.
func TestJobsWithoutAKeyGoUnordered(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'k', 'held', '1', now() + CASE g WHEN 1 THEN interval '1 hour' ELSE interval '0' END FROM generate_series(1, 3000) g`)
	q := ordered(t, db, Options{BatchSize: 50}, Order{})
	want := insert(t, db, "k", 120)
	want = append(want, testdb.Column[int64](t, db, `INSERT INTO jobs (kind, payload, run_at) SELECT 'k', '1', now() - interval '1 day' FROM generate_series(1, 300) RETURNING id`)...)
	var got []int64
	eventually(t, "all are claimed", func() bool {
		leases := claim(t, q)
		for _, l := range leases {
			if l.Key != nil {
				t.Fatalf("claimed job %d of a held key", l.ID)
			}
			got = append(got, l.ID)
		}
		settle(t, q, leases, Outcome{Verdict: Done})
		if len(leases) == 0 {
			sweep(t, q)
		}
		return len(got) >= len(want)
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("claimed %d jobs, want %d, each once", len(got), len(want))
	}
}

// Kinds of both sorts in one queue are both served.
func TestBothSortsOfKindsAreServed(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	keyed(t, db, 200, "a", "b")
	insert(t, db, "plain", 400)
	q := newQueue(t, db, Options{BatchSize: 10})
	q.OrderOf(func(kind string) Order { return Order{Keys: kind == "k"} })
	seen := map[string]int{}
	eventually(t, "both kinds are claimed", func() bool {
		leases := claim(t, q)
		for _, l := range leases {
			seen[l.Kind]++
		}
		settle(t, q, leases, Outcome{Verdict: Done})
		return seen["k"] > 50 && seen["plain"] > 50
	})
	if seen["k"] > 400 || seen["plain"] > 400 || seen["k"] == 400 && seen["plain"] == 400 {
		t.Errorf("seen %v: one sort went first", seen)
	}
}

// A closed key opens when its dead job is requeued (and then goes first), discarded, or done after all.
func TestClosedKeyOpens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(t *testing.T, q *Queue, dead *Lease) error
		want int // place of the first job claimed then
	}{
		{"requeued", func(t *testing.T, q *Queue, l *Lease) error {
			_, err := q.s.RequeueDead(t.Context(), Filter{IDs: []int64{l.ID}}, false)
			return err
		}, 0},
		{"discarded", func(t *testing.T, q *Queue, l *Lease) error {
			_, err := q.s.DiscardDead(t.Context(), Filter{IDs: []int64{l.ID}}, false)
			return err
		}, 1},
		{"done late", func(t *testing.T, q *Queue, l *Lease) error {
			_, err := q.Settle(t.Context(), []Outcome{{Lease: l, Verdict: Done}})
			return err
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ids := keyed(t, db, 3, "a")["a"]
			q := ordered(t, db, Options{}, Order{})
			leases := claim(t, q)
			out := []Outcome{{Lease: &leases[0], Verdict: Dead, Error: "no"}, {Lease: &leases[1]}, {Lease: &leases[2]}}
			if _, err := q.Settle(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			if got := claim(t, q); len(got) > 0 {
				t.Fatalf("claimed %v behind a dead job", byKey(got))
			}
			if err := c.do(t, q, &leases[0]); err != nil {
				t.Fatal(err)
			}
			if got := byKey(claim(t, q))["a"]; !slices.Equal(got, ids[c.want:]) {
				t.Errorf("then claimed %v, want %v", got, ids[c.want:])
			}
		})
	}
}

// Many processes at once, with failures, lost leases and producers under way: nothing of a key is ever out while an
// older job of it is unfinished.
func TestKeysKeepTheirOrderUnderLoad(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, newDB func(testing.TB) *testdb.DB) {
		db := newDB(t)
		const keys, jobs = 20, 3000
		stop := during(t, func(ctx context.Context) {
			for i := 0; i < jobs/10 && ctx.Err() == nil; i++ {
				db.Exec(t, `INSERT INTO jobs (kind, key, payload, max_attempts) SELECT 'k', 'key' || (random() * 1e9)::int % $1, '1', 1000 FROM generate_series(1, 10)`, keys)
			}
		})
		defer stop()
		var mu sync.Mutex
		done := map[string]int64{} // by key, the newest that was done
		finished := 0
		var all sync.WaitGroup
		for w := range 6 {
			q := ordered(t, db, Options{BatchSize: 40, Lease: time.Minute}, Order{})
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			all.Go(func() {
				for {
					mu.Lock()
					ended := finished == jobs
					mu.Unlock()
					if ended || t.Failed() {
						return
					}
					leases := claim(t, q)
					if len(leases) == 0 {
						sweep(t, q)
						time.Sleep(time.Millisecond)
						continue
					}
					var out []Outcome
					stuck := map[string]bool{}
					for i := range leases {
						l := &leases[i]
						o := Outcome{Lease: l, Verdict: Release}
						if !stuck[*l.Key] {
							switch o.Verdict = Done; rnd.IntN(10) {
							case 0:
								o.Verdict, o.After, o.Error = Retry, time.Millisecond, "again"
							case 1:
								o.Verdict = Release
							}
						}
						stuck[*l.Key] = stuck[*l.Key] || o.Verdict != Done
						out = append(out, o)
						if o.Verdict != Done {
							continue
						}
						mu.Lock()
						if l.ID < done[*l.Key] {
							t.Errorf("key %s: %d is out after %d was done", *l.Key, l.ID, done[*l.Key])
						}
						done[*l.Key] = l.ID
						finished++
						mu.Unlock()
					}
					if _, err := q.Settle(t.Context(), out); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// Walking from key to key reads a few pages for each key and job, beside a key with 100,000 jobs, under every plan.
func TestPlansOfKeys(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, newDB func(testing.TB) *testdb.DB) {
		db := newDB(t)
		db.Exec(t, noAutovacuum)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', 'long', '{"n": 1}' FROM generate_series(1, 100000)`)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', 'key' || g % 49, '{"n": 1}' FROM generate_series(1, 4900) g`)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'foreign', 'key' || g % 49, '{"n": 1}' FROM generate_series(1, 100000) g`)
		q := newStore(t, db, Options{BatchSize: 500}).Queue(func(kind string) bool { return kind == "k" })
		q.OrderOf(func(string) Order { return Order{Keys: true} })
		check := func(what string, most int) {
			t.Helper()
			for name, further := range planModes {
				e := explainKeys(t, q, db, further...)
				if e.buffers > most {
					t.Errorf("%s, %s plan: %d buffers, want at most %d: %v", what, name, e.buffers, most, e.nodes)
				}
				for _, n := range e.nodes {
					if strings.HasPrefix(n, "Seq Scan") || strings.HasPrefix(n, "Bitmap") || strings.Contains(n, "jobs_pending_idx") {
						t.Errorf("%s, %s plan: %s in %v", what, name, n, e.nodes)
					}
				}
			}
		}
		const perKey = 8
		check("analyzed by nobody", 50*perKey+500*(perJob+4))
		db.Exec(t, `ANALYZE jobs`)
		check("analyzed", 50*perKey+500*(perJob+4))
		db.Exec(t, noStatistics)
		check("no statistics", 50*perKey+500*(perJob+4))
		claim(t, q)
		check("all keys out", 50*perKey+60)
	})
}
