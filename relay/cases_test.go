package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// failing has the sink fail every job of a kind, and take all others.
func failing(kind string) func(sinks.Message) sinks.Result {
	return func(m sinks.Message) sinks.Result {
		if m.Kind == kind {
			return sinks.Result{Outcome: sinks.Failed, Err: errAway}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}
}

// B07: jobs whose counts are anywhere in their range fail, end or wait as their counts say, and hold up nobody.
func TestB07OddAttempts(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, attempts, max_attempts) SELECT 'odd', '1', a, m
		FROM unnest('{30,31,62,63,64,1023,1100,32767,2147483646,2147483647}'::int[]) a, unnest('{2147483647,0,-1,1,5}'::int[]) m`)
	s := &script{say: failing("odd")}
	e := run(t, db, options{routes: one("*", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("good", 100)
	e.until("good", "done/1", 100)
	// 40 have none left and get one try; two reach the largest count; eight are tried for as long as we look.
	e.eventually("what is used up is dead", func() bool {
		return text(e, `SELECT count(*)::text FROM jobs WHERE kind = 'odd' AND status = 'dead'`) == "42"
	}, func() any { return e.jobs("odd") })
	e.eventually("the others have been tried three times", func() bool {
		return text(e, `SELECT count(*)::text FROM jobs WHERE status IN ('ready', 'running') AND attempts % 32 > 2`) != "0" && len(s.sent()) > 100+42+3*8
	}, func() any { return e.jobs("odd") })
	wait := text(e, `SELECT coalesce(max(run_at) - now(), '0')::text FROM jobs WHERE status = 'ready'`)
	if text(e, `SELECT (coalesce(max(run_at) - now(), '0') < '1 second')::text FROM jobs WHERE status = 'ready'`) != "true" {
		t.Errorf("a job waits for %s, the longest wait is 100ms", wait)
	}
	if got := text(e, `SELECT count(*)::text FROM jobs WHERE status = 'dead' AND last_error LIKE '%away%'`); got != "42" {
		t.Errorf("%s of 42 dead jobs have their reason", got)
	}
}

// B09: writers hold their transactions for a while, in any order. What they commit is sent, once, what they roll back isn't.
func TestB09LateCommits(t *testing.T) {
	t.Parallel()
	s := &script{}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	var writers sync.WaitGroup
	var mu sync.Mutex
	want := map[string]bool{}
	for w := range 14 { // of 16 connections
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 9))
			for range 4 {
				ids, err := writeSlowly(e.db, rnd)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, id := range ids {
					want[fmt.Sprint("test/", id)] = true
				}
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	e.until("a", "done/1", len(want))
	got := s.sent()
	for _, id := range got {
		if !want[id] {
			t.Errorf("%s was sent and not committed, or sent twice", id)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("%d committed jobs were never sent", len(want))
	}
}

// writeSlowly inserts ten jobs and keeps the transaction open for up to four seconds, longer than any floor lags; one in ten rolls back.
func writeSlowly(db *testdb.DB, rnd *rand.Rand) (ids []int64, err error) {
	ctx := context.Background()
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows, err := tx.Query(ctx, `INSERT INTO jobs (kind, payload) SELECT 'a', '1' FROM generate_series(1, 10) RETURNING id`)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond) // this is the fault
	if rnd.IntN(10) == 0 {
		return nil, tx.Rollback(ctx)
	}
	return ids, tx.Commit(ctx)
}

// B23: jobs that are requeued get a full new round, whether the cause is gone or not.
func TestB23NewRound(t *testing.T) {
	t.Parallel()
	s := &script{say: failing("a")}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("a", 20)
	e.until("a", "dead/5", 20)
	requeue := func(filter claim.Filter, want int64) {
		t.Helper()
		if c, err := e.Store.RequeueDead(t.Context(), filter, false); err != nil || c.Changed != want {
			t.Fatalf("%+v, %v; want %d changed", c, err, want)
		}
	}
	requeue(claim.Filter{}, 20)
	e.until("a", "dead/5", 20)
	if n := len(s.sent()); n != 200 {
		t.Errorf("%d messages in two rounds of five tries, want 200", n)
	}
	e.db.Exec(t, `UPDATE jobs SET max_attempts = 2`)
	s.set(nil, nil)
	requeue(claim.Filter{Limit: 15}, 15)
	e.until("a", "done/1", 15)
	if got := e.jobs("a"); got["dead/5"] != 5 {
		t.Errorf("those that weren't requeued: %v, want 5 as they were", got)
	}
}

// B24: a job that is dead because of one destination and is requeued goes only where it is missing; so does one whose route
// gets another destination while it waits.
func TestB24RequeueAndNewDestination(t *testing.T) {
	t.Parallel()
	good, bad, late := &script{}, &script{}, &script{}
	bad.set(all(sinks.Failed, sinks.ScopeMessage), nil)
	db := testdb.New(t)
	two := run(t, db, options{routes: one("a", "good:x", "bad:y"), sinks: map[string]sinks.Sink{"good": good, "bad": bad}})
	two.enqueue("a", 20)
	two.until("a", "dead/5", 20)
	if _, err := two.Store.RequeueDead(t.Context(), claim.Filter{Limit: 10}, false); err != nil {
		t.Fatal(err)
	}
	two.until("a", "dead/5", 20)
	if err := two.stop(); err != nil {
		t.Fatal(err)
	}
	three := run(t, db, options{routes: one("a", "good:x", "bad:y", "late:z"), sinks: map[string]sinks.Sink{"good": good, "bad": bad, "late": late}})
	if _, err := three.Store.RequeueDead(t.Context(), claim.Filter{}, false); err != nil {
		t.Fatal(err)
	}
	three.eventually("the new destination has all", func() bool { return len(late.sent()) == 20 }, func() any { return three.jobs("a") })
	bad.set(nil, nil)
	three.eventually("all done", func() bool { return text(three, `SELECT count(*)::text FROM jobs WHERE status = 'done'`) == "20" }, func() any { return three.jobs("a") })
	if g, l := len(good.sent()), len(late.sent()); g != 20 || l != 20 {
		t.Errorf("the healthy destinations got %d and %d messages for 20 jobs", g, l)
	}
}

// B25: a kind without a route waits, untouched, beside a relay that doesn't know it, until one comes that does.
func TestB25UnroutedKindWaits(t *testing.T) {
	t.Parallel()
	old, knows := &script{}, &script{}
	db := testdb.New(t)
	a := run(t, db, options{routes: one("order.*", "s:x"), sinks: map[string]sinks.Sink{"s": old}})
	for _, kind := range []string{"new", "Order.created", "order", "orders.created"} { // case and dots count
		a.enqueue(kind, 20)
	}
	before := text(a, `SELECT string_agg(j::text, ' ' ORDER BY id) FROM jobs j`)
	a.enqueue("order.created", 200)
	a.until("order.created", "done/1", 200)
	if after := text(a, `SELECT string_agg(j::text, ' ' ORDER BY id) FROM jobs j WHERE kind <> 'order.created'`); after != before {
		t.Errorf("kinds without a route were changed:\n%s\nwere\n%s", after, before)
	}
	run(t, db, options{routes: append(one("new", "s:x"), one("order.*", "s:x")...), sinks: map[string]sinks.Sink{"s": knows}})
	a.until("new", "done/1", 20)
	if n := len(old.sent()); n != 200 {
		t.Errorf("the relay without the route sent %d messages, want 200", n)
	}
}

// B28: jobs that always fail and come back at once take nothing from fresh ones, of their kind or of another.
func TestB28FailingJobsBesideFreshOnes(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.say = func(m sinks.Message) sinks.Result {
		if strings.Contains(string(m.Payload), "bad") {
			return sinks.Result{Outcome: sinks.Failed, Err: errAway}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}
	e := run(t, testdb.New(t), options{routes: one("*", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.db.Exec(t, `INSERT INTO jobs (kind, payload, max_attempts) SELECT 'a', '"bad"', 1000000 FROM generate_series(1, 2000)`)
	e.eventually("all have failed", func() bool { return text(e, `SELECT min(attempts)::text FROM jobs`) != "0" }, func() any { return len(s.sent()) })
	e.enqueue("b", 1)
	e.until("b", "done/1", 1) // a kind that is new takes up to two seconds to be seen
	for range 5 {
		before := len(s.sent())
		e.enqueue("a", 20)
		e.enqueue("b", 20)
		e.eventually("the fresh ones are done", func() bool {
			return text(e, `SELECT count(*)::text FROM jobs WHERE payload <> '"bad"' AND status <> 'done'`) == "0"
		}, func() any { return len(s.sent()) })
		// Those that were due before them may go first: 2,000, and what two workers had in hand.
		if n := s.lastGood() - before; n > 2000+4*50 {
			t.Errorf("%d messages were sent until the last of 40 fresh jobs was", n)
		}
	}
	if got := text(e, `SELECT max(attempts)::text FROM jobs WHERE status = 'done'`); got != "1" {
		t.Errorf("a fresh job needed %s attempts", got)
	}
}

// lastGood is the place, among all messages, of the last one that isn't bad.
func (s *script) lastGood() (at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.batches {
		for _, m := range b {
			if n++; !strings.Contains(string(m.Payload), "bad") {
				at = n
			}
		}
	}
	return at
}
