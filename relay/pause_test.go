package relay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

var errAway = errors.New("away")

// outageOf runs f in a bubble of fake time with pauses whose probes say what *probe says.
func outageOf(t *testing.T, f func(p *pauses, probe *error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var probe error
		p := newPauses(slog.New(slog.DiscardHandler), func(context.Context, place) error { return probe }, func(place) {})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.run(ctx); close(ended) }()
		f(p, &probe)
		stop()
		<-ended
	})
}

// A whole sink is probed more often than an address, of which there may be thousands.
func TestPauseGrowsWhileProbesFail(t *testing.T) {
	outageOf(t, func(p *pauses, probe *error) {
		sink, address := place{"kafka", ""}, place{"kafka", "a"}
		*probe = errAway
		p.fail([]place{sink}, "kafka:a", sinks.Unavailable, errAway)
		p.fail([]place{sink, address}, "kafka:a", sinks.Unavailable, errAway)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for at, want := range map[place]time.Duration{sink: sinkPauseMax, address: pauseMax} {
			if o := p.places[at]; o.delay != want {
				t.Errorf("pause of %v after ten minutes: got %v, want %v", at, o.delay, want)
			}
			if p.open(at) {
				t.Errorf("%v is open although every probe failed", at)
			}
		}
	})
}

// However long a sink was away, it is in use again soon after it has come back: within its longest pause, with jitter, and the
// interval of the probes.
func TestSinkComesBackSoon(t *testing.T) {
	at := place{"kafka", ""}
	for _, away := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		var sum, longest time.Duration
		for range 200 {
			outageOf(t, func(p *pauses, probe *error) {
				*probe = errAway
				p.fail([]place{at}, "kafka:a", sinks.Unavailable, errAway)
				time.Sleep(away)
				synctest.Wait()
				p.mu.Lock()
				*probe = nil
				p.mu.Unlock()
				start := time.Now()
				for !p.open(at) {
					time.Sleep(pauseMin / 5)
				}
				sum, longest = sum+time.Since(start), max(longest, time.Since(start))
			})
		}
		t.Logf("away for %v: in use after %.1f s on average, %.1f s at most", away, (sum / 200).Seconds(), longest.Seconds())
		if most := sinkPauseMax*12/10 + pauseMin; longest > most {
			t.Errorf("away for %v: in use after %v, at most %v is allowed", away, longest, most)
		}
	}
}

// Where probes pass and messages don't, each try may cost a job an attempt: the pauses grow on.
func TestPauseGrowsWhileMessagesFail(t *testing.T) {
	outageOf(t, func(p *pauses, _ *error) {
		at := place{"rabbitmq", ""}
		for range 10 {
			p.fail([]place{at}, "rabbitmq:/q", sinks.Unknown, errAway)
			time.Sleep(2 * pauseMax)
			synctest.Wait()
			if _, ok, lone := p.enter(at, ""); !ok || !lone {
				t.Fatalf("no trial after a probe that passed: ok %v, lone %v", ok, lone)
			}
		}
		if got := p.places[at].delay; got != pauseMax {
			t.Errorf("pause after ten trials that failed: got %v, want %v", got, pauseMax)
		}
	})
}

func TestPauseEndsWithAProbe(t *testing.T) {
	outageOf(t, func(p *pauses, _ *error) {
		at := place{"kafka", "orders"}
		p.fail([]place{at}, "kafka:orders", sinks.Unavailable, errAway)
		if p.open(at) || !p.open(place{"kafka", ""}) || !p.open(place{"kafka", "other"}) {
			t.Error("only the address that failed pauses")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !p.open(at) {
			t.Fatal("still paused after a probe that passed")
		}
		p.fail([]place{at}, "kafka:orders", sinks.Unavailable, errAway) // the probe was too kind
		if got := p.places[at].delay; got != 2*pauseMin {
			t.Errorf("second pause: got %v, want %v: a probe doesn't reset it", got, 2*pauseMin)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		p.accepted(at)
		if !p.calm() {
			t.Error("an accepted message didn't end the outage")
		}
	})
}

func TestTrialAfterSilence(t *testing.T) {
	outageOf(t, func(p *pauses, _ *error) {
		at := place{"sqs", ""}
		p.fail([]place{at}, "sqs:q", sinks.Unknown, errAway)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ok, lone := p.enter(at, ""); !ok || !lone {
			t.Fatalf("first message after silence: ok %v, lone %v", ok, lone)
		}
		if _, ok, _ := p.enter(at, ""); ok {
			t.Error("a second message was let in beside the trial")
		}
		p.untried(at)
		if _, ok, lone := p.enter(at, ""); !ok || !lone {
			t.Error("a trial that was given back can't be taken")
		}
		p.fail([]place{at}, "sqs:q", sinks.Unknown, errAway)
		if _, ok, _ := p.enter(at, ""); ok {
			t.Error("open after a trial that failed")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		p.enter(at, "")
		p.answered(at) // a refusal of the message is a word, too
		if _, ok, lone := p.enter(at, ""); !ok || lone {
			t.Errorf("after a trial with an answer: ok %v, lone %v", ok, lone)
		}
	})
}

func TestLateResultsDontPauseTwice(t *testing.T) {
	outageOf(t, func(p *pauses, probe *error) {
		*probe = errAway
		at := place{"kafka", ""}
		for range 8 { // eight batches were in flight when it went away
			p.fail([]place{at}, "kafka:a", sinks.Unavailable, errAway)
		}
		p.accepted(at) // and one of them had been accepted
		if o := p.places[at]; o == nil || o.delay != pauseMin || o.state != paused {
			t.Errorf("outage: %+v, want one pause of %v", o, pauseMin)
		}
	})
}

// An address that only jobs know is forgotten when none has come to it for a while; one that a route names never.
func TestForgottenAddresses(t *testing.T) {
	outageOf(t, func(p *pauses, probe *error) {
		*probe = errAway
		gone, met, named := place{"kafka", "misspelt"}, place{"kafka", "comes later"}, place{"kafka", "orders"}
		p.lasting = map[place]bool{named: true}
		for _, at := range []place{gone, met, named, {"kafka", ""}} {
			p.fail([]place{at}, "kafka:{header.t}", sinks.Unavailable, errAway)
		}
		for range 40 { // a job that waits comes back when the pause ends
			time.Sleep(pauseMax)
			p.enter(met, "")
		}
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.places[gone] != nil || p.places[met] == nil || p.places[named] == nil || p.places[place{"kafka", ""}] == nil {
			t.Errorf("after 20 minutes known: %v", slices.Collect(maps.Keys(p.places)))
		}
		if p.known.Load() != 3 {
			t.Errorf("%d counted, want 3", p.known.Load())
		}
	})
}

// Where jobs don't come to an address because what is around it is away, it isn't forgotten.
func TestAddressBehindASinkThatIsAway(t *testing.T) {
	outageOf(t, func(p *pauses, probe *error) {
		*probe = errAway
		sink, address := place{"kafka", ""}, place{"kafka", "orders"}
		p.fail([]place{sink, address}, "kafka:{header.t}", sinks.Unknown, errAway)
		p.fail([]place{sink}, "kafka:{header.t}", sinks.Unavailable, errAway)
		time.Sleep(3 * forgetAfter)
		if p.open(address) {
			t.Error("it is forgotten while its sink is away")
		}
		says := func(err error) {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			*probe = err
		}
		says(nil)
		time.Sleep(2 * pauseMax) // the sink is back
		says(errAway)
		p.fail([]place{sink, address}, "kafka:{header.t}", sinks.Unknown, errAway)
		time.Sleep(forgetAfter + time.Second)
		if !p.open(address) {
			t.Error("it isn't forgotten although its sink was back all the time")
		}
	})
}

// The word of a broker ends a trial; a rejection may be the sink's own, for which no broker was asked.
func TestWhatEndsATrial(t *testing.T) {
	t.Parallel()
	e := run(t, testdb.New(t), options{routes: one("k", "s:a"), sinks: map[string]sinks.Sink{"s": &script{}}})
	_ = e.stop() // only its learning is wanted
	at := place{"s", "a"}
	for said, want := range map[sinks.Outcome]outageState{
		sinks.Accepted: back, sinks.Failed: back, sinks.Rejected: trying, sinks.Unavailable: paused, sinks.Unknown: paused,
	} {
		e.pauses.fail([]place{{"s", ""}, at}, "s:a", sinks.Unknown, errAway)
		e.pauses.places[at].state = trying
		e.learn("s", []parcel{{&attempt{to: &destination{text: "s:a"}}, sinks.Message{Address: "a"}}},
			[]sinks.Result{{Outcome: said, Scope: sinks.ScopeAddress, Err: errAway}})
		if got := e.pauses.state(at); got != want {
			t.Errorf("%v: the state is %d, want %d", said, got, want)
		}
		e.pauses.forget(at)
	}
}

// At the bound an address that fails pauses like any other, in place of the one that no job has met for longest.
func TestMostPlaces(t *testing.T) {
	outageOf(t, func(p *pauses, probe *error) {
		*probe = errAway
		named, late := place{"kafka", "orders"}, place{"kafka", "late"}
		p.lasting = map[place]bool{named: true}
		p.fail([]place{named}, "kafka:orders", sinks.Unavailable, errAway)
		for i := range maxPlaces - 1 {
			if i == 2 {
				time.Sleep(time.Second)
			}
			p.fail([]place{{"kafka", strconv.Itoa(i)}}, "kafka:{key}", sinks.Unavailable, errAway)
		}
		p.enter(place{"kafka", "0"}, "") // met again: 1 is the stalest now
		p.fail([]place{late}, "kafka:{key}", sinks.Unavailable, errAway)
		if p.open(late) {
			t.Error("one place more isn't paused")
		}
		if n := p.known.Load(); n != maxPlaces || p.places[named] == nil || p.places[place{"kafka", "1"}] != nil || p.places[place{"kafka", "0"}] == nil {
			t.Errorf("%d places are known, want %d without the stalest", n, maxPlaces)
		}
	})
}

// An address without a word stops nobody else's messages of the same sink, not even when its retries go alone.
func TestSilentAddressPausesAlone(t *testing.T) {
	t.Parallel()
	s := &script{say: func(m sinks.Message) sinks.Result {
		if m.Address == "sick" {
			return sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeAddress, Err: errAway}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}}
	e := run(t, testdb.New(t), options{routes: []Route{{Kind: "sick", To: []string{"s:sick"}}, {Kind: "good", To: []string{"s:good"}}}, sinks: map[string]sinks.Sink{"s": s}})
	e.enqueue("sick", 20)
	for round := range 5 {
		e.enqueue("good", 50)
		e.until("good", "done/1", 50*(round+1))
		if !e.pauses.open(place{"s", ""}) {
			t.Errorf("the whole sink is paused")
		}
	}
	e.eventually("the sick address pauses", func() bool { return !e.pauses.open(place{"s", "sick"}) }, func() any { return e.jobs("sick") })
	s.set(nil, nil)
	e.eventually("the sick ones are done", func() bool {
		n := 0
		for what, count := range e.jobs("sick") {
			if strings.HasPrefix(what, "done") {
				n += count
			}
		}
		return n == 20
	}, func() any { return e.jobs("sick") })
}

// A wider place that is missing is one place that is away, however many addresses lie in it: its jobs aren't claimed, others'
// are, and it is probed as itself.
func TestMissingParentPausesOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	missing := true
	s := &script{say: func(m sinks.Message) sinks.Result {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(m.Address, "gone/") && missing {
			return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeParent, Err: errAway}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}}
	asked := map[string]int{}
	ask := &asking{script: s, check: func(address string) error {
		mu.Lock()
		defer mu.Unlock()
		asked[address]++
		if address == "gone" && !missing {
			return nil
		}
		return errAway
	}}
	e := run(t, testdb.New(t), options{
		routes: []Route{
			{Kind: "gone", To: []string{"s:gone/{key}"}}, {Kind: "odd", To: []string{"s:{header.at}/{key}"}},
			{Kind: "good", To: []string{"s:good/{key}"}}, {Kind: "idle", To: []string{"s:gone/x"}},
		},
		sinks: map[string]sinks.Sink{"s": ask}, change: func(c *Config, _ *claim.Options) { c.Addresses = map[string]Addresses{"s": folders} },
	})
	e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, key, payload) SELECT 'gone', g, '1' FROM generate_series(1, 1000) g`)
	e.eventually("it pauses", func() bool { return !e.pauses.open(place{"s", "gone"}) }, func() any { return e.jobs("gone") })
	e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, key, payload, headers) SELECT 'odd', g, '1', '{"at": "gone"}' FROM generate_series(1, 100) g`)
	e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, key, payload) SELECT 'good', g, '1' FROM generate_series(1, 500) g`)
	e.until("good", "done/1", 500)
	e.eventually("it was probed", func() bool { mu.Lock(); defer mu.Unlock(); return asked["gone"] > 1 }, func() any { return asked })
	e.until("gone", "ready/0", 1000)
	e.until("odd", "ready/0", 100)
	if n := e.pauses.known.Load(); n != 1 {
		t.Errorf("%d places are away, want one", n)
	}
	e.eventually("the other jobs came to it", func() bool {
		return text(e, `SELECT count(*)::text FROM `+e.db.Table+` WHERE kind = 'odd' AND last_error IS NOT NULL`) == "100"
	}, func() any { return e.jobs("odd") })
	for to, s := range e.Health().Destinations {
		if want := to == "s:good/{key}"; s.Up != want {
			t.Errorf("%s: up is %t, want %t, whoever's job found out", to, s.Up, want)
		}
	}
	mu.Lock()
	missing = false
	if len(asked) != 1 {
		t.Errorf("asked about %v, want the wider place alone", asked)
	}
	mu.Unlock()
	e.until("gone", "done/1", 1000)
	e.until("odd", "done/1", 100)
	if n := e.pauses.known.Load(); n != 0 {
		t.Errorf("%d places are away at the end", n)
	}
}

// What has been away for longest is shown, whatever else is.
func TestWorseState(t *testing.T) {
	t.Parallel()
	now := time.Now()
	long, short := State{Since: now.Add(-time.Hour)}, State{Since: now}
	for _, c := range [][3]State{{{Up: true}, short, short}, {long, short, long}, {short, long, long}} {
		if got := c[0].worse(c[1]); got != c[2] {
			t.Errorf("%v beside %v: %v", c[0], c[1], got)
		}
	}
}

// asking is a script with a Check of its own.
type asking struct {
	*script
	check func(address string) error
}

func (a *asking) Check(_ context.Context, address string) error { return a.check(address) }
