package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/internal/testlog"
	"github.com/jobrelay/relay/sinks"
)

// What one source succeeds in says nothing of the others.
func TestDatabaseState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		d := newDatabase(log.Logger())
		want := func(state string, fails, answers int) {
			t.Helper()
			if got := d.state(time.Now()); got != state {
				t.Errorf("state %q, want %q", got, state)
			}
			if f, a := log.Count("the database fails"), log.Count("the database answers again"); f != fails || a != answers {
				t.Errorf("%d lines of failure and %d of success, want %d and %d", f, a, fails, answers)
			}
		}
		want("starting", 0, 0)
		d.report(sourceSweep, nil)
		want("ok", 0, 0)
		for range 50 {
			d.report("claims of lane a", errors.New("claims are refused"))
			d.report(sourceSweep, nil)
			d.report("claims of lane b", nil)
			time.Sleep(time.Second)
		}
		want("claims are refused", 1, 0)
		d.report(sourceSettle, errors.New("settling is refused"))
		for range 20 {
			d.report("claims of lane a", errors.New("claims are refused in another way"))
			d.report(sourceSweep, nil)
			time.Sleep(time.Second)
		}
		want("claims are refused in another way", 3, 0)
		d.report("claims of lane a", nil)
		want("settling is refused", 3, 1)
		for range 15 { // nothing is settled any more
			d.report(sourceSweep, nil)
			time.Sleep(time.Second)
		}
		want("ok", 3, 1)
		d.report(sourceSettle, nil)
		want("ok", 3, 2)
		d.report(sourceSweep, context.Canceled)
		want("ok", 3, 2)
		time.Sleep(silence + time.Second)
		want("no answer for 11s", 3, 2)
	})
}

// Statements that fail are in the log and in the readiness, with Postgres' own words.
func TestFailingStatementsAreSaid(t *testing.T) {
	t.Parallel()
	var log testlog.Buffer
	e := run(t, testdb.New(t), options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": &script{}}, change: func(c *Config, _ *claim.Options) { c.Log = log.Logger() }})
	e.enqueue("a", 1)
	e.until("a", "done/1", 1)
	e.db.Exec(t, `ALTER TABLE `+e.db.Table+` RENAME COLUMN leased_until TO leased`)
	e.eventually("the readiness says why", func() bool { return strings.Contains(e.Health().Database, "42703") }, func() any { return e.Health().Database })
	e.eventually("so does the log", func() bool { return log.Count("claims of lane s") == 1 && log.Count("42703") >= 1 }, func() any { return log.Count("") })
	e.db.Exec(t, `ALTER TABLE `+e.db.Table+` RENAME COLUMN leased TO leased_until`)
	e.eventually("it is ready again", func() bool { return e.Health().Database == "ok" }, func() any { return e.Health().Database })
	e.eventually("the log says so", func() bool { return log.Count("the database answers again") >= 1 }, func() any { return log.Count("") })
}
