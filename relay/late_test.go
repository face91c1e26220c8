package relay

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// A broker's word that comes when the lease is known to be lost still counts, unless somebody else has claimed the job
// since: it saves a duplicate, and a job that was delivered isn't dead.
func TestLateWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ meanwhile, want string }{
		"reaped":        {`status = 'ready', leased_until = NULL, run_at = now() + interval '1 hour'`, "done/1"},
		"reaped, dead":  {`status = 'dead', leased_until = NULL, last_error = 'lease expired'`, "done/1"},
		"claimed again": {`lease_token = lease_token / 2, attempts = 2, leased_until = now() + interval '1 hour'`, "running/2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs = 5
			s := &script{hang: make(chan struct{})}
			db := testdb.New(t)
			e := run(t, db, options{routes: []Route{{Kind: "a", To: []string{"s:x"}, Order: "key"}}, sinks: map[string]sinks.Sink{"s": s}, change: func(c *Config, o *claim.Options) {
				o.Lease, c.PublishTimeout = 6*time.Second, 5*time.Second
			}})
			db.Exec(t, `INSERT INTO `+db.Table+` (kind, key, payload, max_attempts) SELECT 'a', 'k' || g, '1', 1 FROM generate_series(1, $1::int) g`, jobs)
			e.eventually("the sink has them", func() bool { return len(s.sent()) == jobs }, func() any { return len(s.sent()) })
			db.Exec(t, `UPDATE `+db.Table+` SET `+c.meanwhile)
			lost := func() float64 { return testutil.ToFloat64(e.metrics.lostLeases) }
			e.eventually("the loss is noticed", func() bool { return lost() == jobs }, func() any { return lost() })
			close(s.hang)
			e.until("a", c.want, jobs)
			if err := e.stop(); err != nil {
				t.Error(err)
			}
			if got := e.jobs("a"); got[c.want] != jobs || lost() != jobs || len(s.sent()) != jobs {
				t.Errorf("%v, %v lost leases of %d, %d messages", got, lost(), jobs, len(s.sent()))
			}
			done := testutil.ToFloat64(e.metrics.jobsSettled.WithLabelValues("a", "s:x", "done"))
			if want := map[bool]float64{true: jobs}[c.want == "done/1"]; done != want {
				t.Errorf("%v settled as done, want %v", done, want)
			}
			if n := text(e, `SELECT count(*)::text FROM relay_closed_keys`); n != "0" {
				t.Errorf("%s keys are closed", n)
			}
		})
	}
}
