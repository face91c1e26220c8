package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// B22: what a broker has definitely not taken costs no attempt, however long it is away.
func TestB22OutageCostsNoAttempt(t *testing.T) {
	t.Parallel()
	for _, scope := range []sinks.Scope{sinks.ScopeSink, sinks.ScopeAddress, sinks.ScopeMessage} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			s := &script{}
			s.set(all(sinks.Unavailable, scope), errAway)
			e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, _ *claim.Options) { c.PollMax = time.Second }})
			start := time.Now()
			e.enqueue("a", 200)
			e.eventually("several tries", func() bool { return len(s.sent()) >= 50 && (scope != sinks.ScopeMessage || len(s.sent()) >= 400) }, func() any { return len(s.sent()) })
			e.eventually("all given back", func() bool { return e.jobs("a")["ready/0"] == 200 }, func() any { return e.jobs("a") })
			most := 200
			if scope == sinks.ScopeMessage { // nothing pauses, but each of two workers rests between its batches of 50
				most = 2 * 50 * (2 + int(time.Since(start)/(e.PollMax/4*8/10)))
			}
			if tries := len(s.sent()); tries > most {
				t.Errorf("%d messages were sent in vain in %v, want at most %d", tries, time.Since(start), most)
			}
			s.set(nil, nil)
			e.until("a", "done/1", 200)
		})
	}
}

// A broker that takes messages and says nothing costs the first batches one attempt, not all jobs all attempts.
func TestSilenceCostsOneAttempt(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.set(all(sinks.Unknown, sinks.ScopeSink), errAway)
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("a", 300)
	e.eventually("the sink is away", func() bool { return !e.Health().Sinks["s"].Up }, func() any { return e.Health() })
	e.eventually("three probes", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.checks >= 3 }, func() any { return e.Health() })
	if got := e.jobs("a"); got["ready/0"] < 200 || got["ready/1"] > 100 { // without a pause retries would have come every 100 ms
		t.Errorf("after three probes: %v, want at most two batches with one attempt", got)
	}
	s.set(nil, nil)
	e.eventually("all done", func() bool { j := e.jobs("a"); return j["done/1"]+j["done/2"] == 300 }, func() any { return e.jobs("a") })
	if n := testutil.ToFloat64(e.metrics.duplicates.WithLabelValues("s")); n == 0 || n > 100 {
		t.Errorf("possible duplicates: %v", n)
	}
}

// A message that makes the broker cut the connection dies of its own attempts; its neighbours get through.
func TestPoisonDiesAlone(t *testing.T) {
	t.Parallel()
	s := &script{}
	var poison string
	s.say = func(m sinks.Message) sinks.Result {
		s.mu.Lock()
		defer s.mu.Unlock()
		last := s.batches[len(s.batches)-1]
		if slices.ContainsFunc(last, func(m sinks.Message) bool { return strings.Contains(string(m.Payload), "poison") }) {
			return sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: errors.New("connection cut")}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, _ *claim.Options) { c.Workers = 1 }})
	e.enqueue("a", 30)
	poison = text(e, `INSERT INTO `+e.db.Table+` (kind, payload) VALUES ('a', '{"poison": true}') RETURNING id::text`)
	e.eventually("30 done, one dead", func() bool {
		return text(e, `SELECT count(*)::text FROM `+e.db.Table+` WHERE status = 'done'`) == "30" && text(e, `SELECT status FROM `+e.db.Table+` WHERE id = `+poison) == "dead"
	}, func() any { return e.jobs("a") })
	if got := text(e, `SELECT max(attempts)::text FROM `+e.db.Table+` WHERE status = 'done'`); got > "3" {
		t.Errorf("a neighbour of the poison needed %s attempts", got)
	}
}

// B28: a sink that hangs holds only its own lane.
func TestB28HungSinkHoldsOnlyItsLane(t *testing.T) {
	t.Parallel()
	hung, good := &script{hang: make(chan struct{})}, &script{}
	e := run(t, testdb.New(t), options{routes: []Route{{Kind: "h", To: []string{"hung:x"}}, {Kind: "g", To: []string{"good:x"}}}, sinks: map[string]sinks.Sink{"hung": hung, "good": good}})
	e.enqueue("h", 500)
	e.eventually("both workers hang", func() bool { return e.jobs("h")["running/1"] == 100 }, func() any { return e.jobs("h") })
	e.enqueue("g", 500)
	e.until("g", "done/1", 500)
	close(hung.hang)
	e.until("h", "done/1", 500)
}

// B05: a batch that takes longer than a lease is renewed meanwhile; nobody else gets its jobs.
func TestB05LeasesAreRenewed(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := &script{delay: 400 * time.Millisecond}
	short := func(c *Config, o *claim.Options) {
		o.Lease, c.PublishTimeout, c.Workers = 1500*time.Millisecond, time.Second, 1
	}
	e := run(t, db, options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: short})
	db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload, alone) SELECT 'a', '1', true FROM generate_series(1, 10)`) // 4 s one by one
	e.eventually("claimed", func() bool { return e.jobs("a")["ready/0"] == 0 }, func() any { return e.jobs("a") })
	other := &script{}
	run(t, db, options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": other}, change: short})
	e.until("a", "done/1", 10)
	if n := len(other.sent()); n != 0 {
		t.Errorf("another relay got %d of the jobs", n)
	}
	if n := testutil.ToFloat64(e.metrics.jobsClaimed.WithLabelValues("a")); n != 10 {
		t.Errorf("%v claims for 10 jobs: they were given back when the lease ended", n)
	}
	if n := len(s.sent()); n != 10 {
		t.Errorf("%d messages for 10 jobs", n)
	}
	if n := testutil.ToFloat64(e.metrics.lostLeases); n != 0 {
		t.Errorf("%v leases were lost", n)
	}
}

// A sink that panics costs a retry of that batch, not the process.
func TestPanicInASink(t *testing.T) {
	t.Parallel()
	s := &script{}
	first := true
	s.say = func(sinks.Message) sinks.Result {
		if first {
			first = false
			panic("boom")
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, _ *claim.Options) { c.Workers = 1 }})
	e.enqueue("a", 3)
	e.eventually("all done", func() bool { j := e.jobs("a"); return j["done/1"]+j["done/2"] == 3 }, func() any { return e.jobs("a") })
}

// B16: a sink that doesn't keep its deadline costs its messages an attempt, not the worker.
func TestB16SinkThatNeverReturns(t *testing.T) {
	t.Parallel()
	deaf := &script{deaf: make(chan struct{})}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": deaf}, change: func(c *Config, _ *claim.Options) {
		c.Workers, c.PublishTimeout = 1, 200*time.Millisecond
	}})
	e.enqueue("a", 1)
	e.eventually("the job is back", func() bool { return e.jobs("a")["ready/1"] == 1 }, func() any { return e.jobs("a") })
	e.eventually("no more calls are made", func() bool { return e.calls["s"].hung.Load() == 1 && !e.Health().Sinks["s"].Up }, func() any { return e.Health() })
	close(deaf.deaf)
	e.eventually("done", func() bool { return e.jobs("a")["done/2"] == 1 }, func() any { return e.jobs("a") })
}

// B26: a drain ends what is in flight and gives back the rest; a drain that can't gives up in time.
func TestB26Drain(t *testing.T) {
	t.Parallel()
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		s := &script{hang: make(chan struct{})}
		e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
		e.enqueue("a", 500)
		e.eventually("both workers hang", func() bool { return len(s.sent()) == 100 }, func() any { return e.jobs("a") })
		ended := make(chan error)
		go func() { ended <- e.stop() }()
		e.eventually("draining", func() bool { return e.Health().Draining && !e.Health().Ready() }, func() any { return e.Health() })
		close(s.hang)
		if err := <-ended; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
		if got := e.jobs("a"); got["done/1"] != 100 || got["ready/0"] != 400 {
			t.Errorf("after the drain: %v, want 100 done and 400 as they were", got)
		}
	})
	t.Run("what wasn't begun", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		s := &script{hang: make(chan struct{})}
		db.Exec(t, `INSERT INTO `+db.Table+` (kind, payload, alone) SELECT 'a', '1', true FROM generate_series(1, 10)`) // sent one by one
		e := run(t, db, options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, _ *claim.Options) { c.Workers = 1 }})
		e.eventually("the first hangs", func() bool { return len(s.sent()) == 1 }, func() any { return e.jobs("a") })
		ended := make(chan error)
		go func() { ended <- e.stop() }()
		e.eventually("draining", func() bool { return e.Health().Draining }, func() any { return e.Health() })
		close(s.hang)
		if err := <-ended; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
		if got := e.jobs("a"); got["done/1"] != 1 || got["ready/0"] != 9 {
			t.Errorf("after the drain: %v, want one done and nine as they were", got)
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		t.Parallel()
		s := &script{hang: make(chan struct{})}
		e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
		e.enqueue("a", 100)
		e.eventually("it hangs", func() bool { return len(s.sent()) > 0 }, func() any { return e.jobs("a") })
		e.abandon()
		if err := e.stop(); !errors.Is(err, ErrGaveUp) {
			t.Errorf("Run: got %v, want ErrGaveUp", err)
		}
	})
}

// Jobs that can't become a message are dead with the rule, and don't hold up their neighbours.
func TestB08OddRows(t *testing.T) {
	t.Parallel()
	s := &script{}
	e := run(t, testdb.New(t), options{routes: one("*", "s:q.{header.region}"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, _ *claim.Options) {
		c.Addresses = map[string]Addresses{"s": {Check: func(a string) error {
			if strings.Contains(a, " ") {
				return fmt.Errorf("address %q: spaces aren't allowed", a)
			}
			return nil
		}}}
	}})
	for _, h := range []string{`{"region": "eu", "x": null}`, `{"region": "eu", "x": [1]}`, `{"region": "eu", "x": {}}`, `{}`, `{"region": "e u"}`, `{"region": "eu", "relay-id": "y"}`} {
		e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, payload, headers) SELECT 'bad', '1', $1::jsonb FROM generate_series(1, 20)`, h)
	}
	e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, payload, headers) SELECT 'good', '1', '{"region": "eu"}' FROM generate_series(1, 100)`)
	e.until("good", "done/1", 100)
	e.until("bad", "dead/1", 120)
	want := []string{`header "x": is null`, `header "x": is an array`, `header "x": is an object`, "{header.region}", "spaces aren't allowed", "relay-"}
	got := text(e, `SELECT string_agg(DISTINCT last_error, E'\n') FROM `+e.db.Table+` WHERE status = 'dead'`)
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no dead job says %q:\n%s", w, got)
		}
	}
}

// A message is decided on, claimed and settled with the id that the source and the table give it.
func TestSourceIsPartOfTheID(t *testing.T) {
	t.Parallel()
	s := &script{}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("a", 1)
	e.until("a", "done/1", 1)
	if got, want := s.sent()[0], "test/"+text(e, `SELECT id::text FROM `+e.db.Table); got != want {
		t.Errorf("id: got %s, want %s", got, want)
	}
}

// A claim that brought half a batch is followed by the next one at once: half of the Store's batch, in rows or bytes.
func TestFullBatch(t *testing.T) {
	t.Parallel()
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": &clock{}}, change: func(_ *Config, o *claim.Options) {
		o.BatchSize, o.BatchBytes = 5, 1000
	}})
	large := []claim.Lease{{Payload: bytes.Repeat([]byte(" "), 500)}}
	for n, full := range []bool{false, false, false, true, true} {
		if got := e.full(make([]claim.Lease, n)); got != full {
			t.Errorf("%d of 5 jobs are a full batch: %v", n, got)
		}
	}
	if !e.full(large) {
		t.Error("half of the bytes aren't a full batch")
	}
}

// A batch is out of the sink's hands before its lease ends, early enough to be settled, also when that is sooner than the
// time for publishing.
func TestPublishingEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	deadlines := make(chan time.Duration, 1)
	s := &clock{deadlines}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, o *claim.Options) {
		c.PublishTimeout = o.Lease - time.Millisecond
	}})
	e.enqueue("a", 1)
	if got, most := <-deadlines, e.batch.Lease-margin(e.batch.Lease); got > most || got < most/2 {
		t.Errorf("of a lease of %v the sink gets %v, want at most %v", e.batch.Lease, got, most)
	}
	e.until("a", "done/1", 1)
}

// clock is a sink that tells how much time it gets.
type clock struct{ deadlines chan time.Duration }

func (c *clock) Publish(ctx context.Context, _ []sinks.Message, results []sinks.Result) {
	deadline, _ := ctx.Deadline()
	c.deadlines <- time.Until(deadline)
	for i := range results {
		results[i].Outcome = sinks.Accepted
	}
}

func (*clock) Check(context.Context, string) error { return nil }
func (*clock) Close(context.Context) error         { return nil }

// A job that no route matches, however it came into a worker's hands, is given back and not taken for done.
func TestJobWithoutARouteIsGivenBack(t *testing.T) {
	t.Parallel()
	s := &script{}
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("b", 1)
	q := e.Store.Queue(func(string) bool { return true })
	q.Expect("b")
	var leases []claim.Lease
	e.eventually("claimed", func() bool {
		var err error
		leases, err = q.Claim(t.Context(), func(claim.Pair) claim.Gate { return claim.Gate{Open: true} })
		return err == nil && len(leases) == 1
	}, func() any { return e.jobs("b") })
	e.pass(t.Context(), &admission{pauses: e.pauses, router: e.router, lane: e.router.lanes[0]}, leases)
	if got := e.jobs("b"); got["ready/0"] != 1 {
		t.Errorf("got %v, want it ready", got)
	}
}
