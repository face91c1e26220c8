package claim

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

// steep drains many jobs of the kind beside a held snapshot. A walk over them takes twice as long as most, on the machine
// as it is now.
func steep(t *testing.T, keys bool) (db *testdb.DB, most time.Duration) {
	t.Helper()
	db = testdb.New(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, run_at) SELECT 'k', CASE WHEN $2 THEN 'key' || g END, '1', now() - interval '1 hour' + g * interval '1 millisecond'
		FROM generate_series(1, $1::int) g`, 400_000, keys)
	hold(t, db)
	db.Exec(t, `DELETE FROM jobs`)
	start := time.Now()
	db.Exec(t, `BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
		SELECT id FROM jobs WHERE finished_at IS NULL AND kind = 'k' AND priority = 0 ORDER BY run_at, id LIMIT 1; COMMIT`)
	return db, max(time.Since(start)/2, 20*time.Millisecond)
}

// tryClaim claims once. On a busy machine any statement may exceed the bound.
func tryClaim(t testing.TB, q *Queue) []Lease {
	t.Helper()
	leases, err := q.Claim(t.Context(), open)
	if err != nil && !cutOff(err) {
		t.Fatal(err)
	}
	return leases
}

func trySweep(t testing.TB, q *Queue) Swept {
	t.Helper()
	swept, err := q.Sweep(t.Context())
	if err != nil && !cutOff(err) {
		t.Fatal(err)
	}
	return swept
}

// A process that starts beside a held snapshot, where a walk over what was drained takes longer than a statement may,
// still claims what is new, finds what is old, and ends leases; whether it knows its kinds or must find them.
func TestStartBesideWhatWasDrained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		expect, keys, alone bool // alone: nothing live is in front of what was drained, so looking for pairs takes as long
	}{{name: "exact", expect: true}, {name: "glob"}, {name: "glob, alone", alone: true}, {name: "ordered", expect: true, keys: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db, most := steep(t, c.keys)
			missing := map[int64]string{}
			if !c.alone {
				missing[testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '"old"', now() - interval '70 minutes') RETURNING id`)] = "old"
				missing[testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at, status, attempts, leased_until, lease_token)
					VALUES ('k', '"expired"', now() - interval '58 minutes', 'running', 1, now() - interval '1 minute', 7) RETURNING id`)] = "expired"
			}
			q := newQueue(t, db, Options{Statement: most})
			q.OrderOf(func(string) Order { return Order{Keys: c.keys} })
			if c.expect {
				q.Expect("k")
			}
			fresh := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload) VALUES ('k', CASE WHEN $1 THEN 'fresh' END, '"fresh"') RETURNING id`, c.keys)
			missing[fresh] = "fresh"
			start := time.Now()
			eventually(t, "all are claimed", func() bool {
				for _, l := range tryClaim(t, q) {
					t.Logf("%s after %v", missing[l.ID], time.Since(start))
					delete(missing, l.ID)
				}
				trySweep(t, q)
				return len(missing) == 0
			})
		})
	}
}

// Where looking for pairs takes too long the newest jobs tell of them, even where these can't all be looked at in time.
func TestPairsOfTheNewestJobs(t *testing.T) {
	t.Parallel()
	db, most := steep(t, false)
	q := newQueue(t, db, Options{Statement: max(most/4, 5*time.Millisecond)})
	want := Pair{Kind: "new", Priority: 3}
	db.Exec(t, `INSERT INTO jobs (kind, priority, payload) VALUES ($1, $2, '1')`, want.Kind, want.Priority)
	eventually(t, "it is found though the scan was cut off", func() bool {
		q.sweeper.pairsNext = time.Time{}
		found, err := q.scanPairs(t.Context())
		if err != nil && !cutOff(err) {
			t.Fatal(err)
		}
		return q.sweeper.pairsLate && slices.Equal(found, []Pair{want})
	})
}

// The backlog of a restart is claimed at once and from its beginning: nothing waits for a sweep.
func TestStartWithABacklog(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, waitingJobs, 2000)
	for _, expect := range []bool{true, false} {
		q := newQueue(t, db, Options{})
		if expect {
			q.Expect("k")
		}
		next := testdb.One[int64](t, db, `SELECT min(id) FROM jobs WHERE status = 'ready'`)
		for range 2 {
			for i, l := range claim(t, q) {
				if l.ID != next {
					t.Fatalf("job %d comes as number %d, want %d", l.ID, i, next)
				}
				next++
			}
		}
		if next%500 != 1 {
			t.Errorf("claimed up to %d", next)
		}
	}
}

// A due job that somebody has locked costs a look a second, not one as often as can be, and is claimed soon after.
func TestLockedRowIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		keys bool
	}{{"without an order", false}, {"ordered", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			q := newQueue(t, db, Options{})
			q.OrderOf(func(string) Order { return Order{Keys: c.keys} })
			drain(t, q)
			insert(t, db, "k", 1)
			drain(t, q)
			raiseFloors(t, q, time.Now())
			id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, payload, run_at) VALUES ('k', '1', now() - interval '1 hour') RETURNING id`)
			tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = $1 FOR UPDATE`, id); err != nil {
				t.Fatal(err)
			}
			// As the relay does it: at once again while there is something, else once a second.
			rounds, start, last := 0, time.Now(), time.Time{}
			round := func() (claimed bool) {
				if wait := time.Second - time.Since(last); wait > 0 {
					time.Sleep(wait)
				}
				rounds++
				if last = time.Now(); sweep(t, q).Due > 0 {
					last = time.Time{}
				}
				got := claim(t, q)
				return len(got) == 1 && got[0].ID == id
			}
			for time.Since(start) < 3*time.Second {
				if rounds > 20 {
					t.Fatalf("%d rounds within %v", rounds, time.Since(start))
				}
				if round() {
					t.Fatal("claimed what is locked")
				}
			}
			t.Logf("%d rounds", rounds)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			free := time.Now()
			eventually(t, "it is claimed", round)
			if took := time.Since(free); took > 10*time.Second {
				t.Errorf("claimed %v after the lock was gone", took)
			}
		})
	}
}

// What was reopened is looked at until a claim has passed it, however the claims and the sweeps come; stretches are in
// order, apart, below the floor and few.
func TestStretchesCoverWhatWasReopened(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	p := &pair{floor: point{1000, 0}}
	left := map[point]bool{} // jobs that are due and that sweeps or reapers have told of
	covers := func(at point) bool {
		return slices.ContainsFunc(p.parts(), func(s stretch) bool { return s.from.less(at) && !s.to.less(at) })
	}
	for step := range 5000 {
		switch random.IntN(4) {
		case 0: // a sweep's finding, or a single job
			job := point{random.Int64N(1100), random.Int64N(5) + 1}
			last := job
			if left[job] = true; random.IntN(2) == 0 {
				last.at += random.Int64N(20)
				left[last] = true
			}
			p.reopen(point{job.at, job.id - 1}, last)
		case 1: // the clock goes on
			p.raise(point{min(p.floor.at+10, 1000), 0}, p.moved)
			for job := range left {
				if !covers(job) {
					delete(left, job)
				}
			}
		default: // a claim of one part; sometimes something comes in between
			parts := p.parts()
			part := parts[random.IntN(len(parts))]
			b := branch{pair: p, floor: part.from, to: part.to, moved: p.moved}
			to := point{min(part.to.at, 1000), part.to.id}
			if random.IntN(2) == 0 {
				to = point{part.from.at + 5, 3}
			}
			between := random.IntN(3) == 0
			if between {
				job := point{random.Int64N(1000), 2}
				left[job] = true
				p.reopen(point{job.at, 1}, job)
			}
			if p.passed(b, lower(to, part.to)); !between {
				for job := range left {
					if part.from.less(job) && !lower(to, part.to).less(job) {
						delete(left, job)
					}
				}
			}
		}
		for job := range left {
			if !covers(job) {
				t.Fatalf("step %d: %v isn't looked at: floor %v, stretches %v", step, job, p.floor, p.stretches)
			}
		}
		before := bottom
		for _, s := range p.stretches {
			if s.from.less(before) || !s.from.less(s.to) || !s.to.less(p.floor) {
				t.Fatalf("step %d: stretches %v below %v", step, p.stretches, p.floor)
			}
			before = s.to
		}
		if len(p.stretches) > stretchesMost {
			t.Fatalf("step %d: %d stretches", step, len(p.stretches))
		}
	}
}

// Of a claim that was cut off the parts without a beginning are to blame; else all that lay deep, and the next one gets
// more time, which quick ones take back.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	q := (&Store{opt: Options{}.withDefaults()}).Queue(every)
	q.Expect("blind", "late")
	now := pointAt(time.Now())
	late := q.find(Pair{Kind: "late"})
	late.floor, late.asked = now.back(lagMost), time.Now()
	late.reopen(now.back(time.Hour), now.back(time.Minute))
	gates := q.ask(open)
	p := q.plan(gates)
	if p.most != deepMost || len(p.branches) != 3 {
		t.Fatalf("%d branches within %v", len(p.branches), p.most)
	}
	if !q.giveUp(p, now) || q.find(Pair{Kind: "blind"}).floor != now.back(lagMost) || len(late.stretches) != 1 || q.patience != deepMost {
		t.Errorf("blind: %v, late: %v, %v", q.find(Pair{Kind: "blind"}).floor, late.stretches, q.patience)
	}
	if p = q.plan(gates); !q.giveUp(p, now) || len(late.stretches) != 0 || q.patience != 2*deepMost {
		t.Errorf("late: %v, %v", late.stretches, q.patience)
	}
	q.find(Pair{Kind: "blind"}).asked = time.Now()
	if p = q.plan(gates); p.most != q.s.opt.Statement || q.giveUp(p, now) || q.giveUp(p, point{}) {
		t.Errorf("nothing is deep, but it is given up after %v", p.most)
	}
	late.reopen(now.back(time.Hour), now.back(time.Minute))
	if p = q.plan(gates); p.most != 2*deepMost {
		t.Errorf("%v for the next", p.most)
	}
	if q.learn(p, taken{at: now}, time.Millisecond); len(late.stretches) != 0 || q.patience != deepMost {
		t.Errorf("late: %v, %v", late.stretches, q.patience)
	}
}

// A strip whose slices are cut off is halved until they aren't, covers all the same, and leaves out what can't be halved.
func TestStripOfLateSlices(t *testing.T) {
	t.Parallel()
	s := strip{within: bottom}
	day := int64(24 * time.Hour / time.Microsecond)
	to := point{10 * day, 0}
	// A day's drained jobs take a minute to walk over; those of one moment take a minute by themselves.
	moment := 8*day + day/3
	cost := func(from, until point) (took time.Duration) {
		within := func(at int64) int64 { return min(max(at, 8*day), 9*day) }
		took = time.Duration(within(until.at)-within(from.at)) * time.Microsecond / (24 * 60)
		if from.at < moment && until.at >= moment {
			took += time.Minute
		}
		return took
	}
	for pass, late := range []int{400, 20, 5, 5} {
		at, cutOff := bottom, 0
		for looks := 0; ; looks++ {
			from, until, ok := s.cut(to)
			if !ok || at.less(from) || looks > 2000 {
				t.Fatalf("pass %d: slice from %v to %v, looked up to %v", pass, from, until, at)
			}
			if took := cost(from, until); took > s.most() {
				_, splits := s.middle(s.next)
				cutOff++
				if s.late(s.most()); !splits {
					if from.at < moment-1 || until.at != moment {
						t.Errorf("pass %d: left out %v to %v", pass, from, until)
					}
					at = until
				}
			} else {
				s.passed(3, until, took)
				at = until
			}
			if s.next == 0 && at == to {
				break
			}
		}
		if t.Logf("pass %d: %d cut off, %d slices", pass, cutOff, len(s.ends)); cutOff > late {
			t.Errorf("pass %d: %d looks were cut off, want at most %d", pass, cutOff, late)
		}
	}
}
