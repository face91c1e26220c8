package relay

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// B24: each destination gets a job until it has accepted it, and then never again.
func TestB24FanOutSendsOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	good, bad := &script{}, &script{}
	bad.set(all(sinks.Failed, sinks.ScopeMessage), nil)
	e := run(t, testdb.New(t), options{routes: one("a", "good:x", "bad:y"), sinks: map[string]sinks.Sink{"good": good, "bad": bad}})
	e.enqueue("a", 20)
	e.eventually("three tries", func() bool { return len(bad.sent()) >= 60 }, func() any { return len(bad.sent()) })
	bad.set(nil, nil)
	e.eventually("all done", func() bool { return text(e, `SELECT count(*)::text FROM `+e.db.Table+` WHERE status = 'done'`) == "20" }, func() any { return e.jobs("a") })
	if n := len(good.sent()); n != 20 {
		t.Errorf("the healthy destination got %d messages for 20 jobs", n)
	}
	if got := text(e, `SELECT string_agg(DISTINCT delivered::text, ' ') FROM `+e.db.Table); got != "{good:x,bad:y}" && got != "{bad:y,good:x}" {
		t.Errorf("delivered: %s", got)
	}
}

// While one destination is away the others get every job, at once.
func TestB24FanOutBesideAnOutage(t *testing.T) {
	t.Parallel()
	good, bad := &script{}, &script{}
	bad.set(all(sinks.Unavailable, sinks.ScopeAddress), errAway)
	e := run(t, testdb.New(t), options{routes: one("a", "good:x", "bad:y"), sinks: map[string]sinks.Sink{"good": good, "bad": bad}})
	e.enqueue("a", 200)
	e.eventually("the healthy one has all", func() bool { return len(good.sent()) == 200 }, func() any { return len(good.sent()) })
	e.until("a", "ready/0", 200)
	if h := e.Health(); h.Destinations["bad:y"].Up || !h.Destinations["good:x"].Up || !h.Sinks["bad"].Up || !h.Degraded() {
		t.Errorf("health: %+v", h)
	}
	bad.set(nil, nil)
	e.until("a", "done/1", 200)
	if n := len(good.sent()); n != 200 {
		t.Errorf("the healthy destination got %d messages for 200 jobs", n)
	}
}

// One destination rejects for ever: the others still get the job, then it is dead and names the one.
func TestB24RejectedByOneDestination(t *testing.T) {
	t.Parallel()
	good, bad := &script{}, &script{}
	bad.set(func(sinks.Message) sinks.Result {
		return sinks.Result{Outcome: sinks.Rejected, Err: errors.New("300 bytes, the limit is 200")}
	}, nil)
	e := run(t, testdb.New(t), options{routes: one("a", "good:x", "bad:y"), sinks: map[string]sinks.Sink{"good": good, "bad": bad}})
	e.enqueue("a", 5)
	e.until("a", "dead/1", 5)
	if n := len(good.sent()); n != 5 {
		t.Errorf("the other destination got %d of 5", n)
	}
	if got := text(e, `SELECT min(last_error) FROM `+e.db.Table); got != "bad:y: 300 bytes, the limit is 200" {
		t.Errorf("last_error: %s", got)
	}
	if n := testutil.ToFloat64(e.metrics.jobsDead.WithLabelValues("a", "bad:y", reasonRejected)); n != 5 {
		t.Errorf("relay_jobs_dead_total: got %v, want 5", n)
	}
}

// What one destination rejects while another is away waits for it, out of the way of the jobs behind.
func TestB24RejectedBesideAnOutage(t *testing.T) {
	t.Parallel()
	const refused, fine = 120, 200
	picky, away := &script{}, &script{}
	picky.set(func(m sinks.Message) sinks.Result {
		if strings.Contains(string(m.Payload), "refuse me") {
			return sinks.Result{Outcome: sinks.Rejected, Err: errors.New("not this one")}
		}
		return sinks.Result{Outcome: sinks.Accepted}
	}, nil)
	away.set(all(sinks.Unavailable, sinks.ScopeSink), errAway)
	e := run(t, testdb.New(t), options{routes: one("a", "picky:x", "away:y"), sinks: map[string]sinks.Sink{"picky": picky, "away": away}})
	e.db.Exec(t, `INSERT INTO `+e.db.Table+` (kind, payload) SELECT 'a', '"refuse me"' FROM generate_series(1, $1::int)`, refused)
	e.enqueue("a", fine)
	delivered := func() string {
		return text(e, `SELECT count(*)::text FROM `+e.db.Table+` WHERE delivered = '{picky:x}'`)
	}
	e.eventually("those behind are delivered", func() bool { return delivered() == fmt.Sprint(fine) }, func() any { return delivered() })
	e.eventually("the others say why they wait", func() bool {
		return text(e, `SELECT count(*)::text FROM `+e.db.Table+` WHERE last_error LIKE 'picky:x: not this one; away:y: %'`) == fmt.Sprint(refused)
	}, func() any { return text(e, `SELECT array_agg(DISTINCT last_error)::text FROM `+e.db.Table) })
	away.set(nil, nil)
	e.until("a", "done/1", fine)
	e.until("a", "dead/1", refused)
}
