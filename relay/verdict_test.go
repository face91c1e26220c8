package relay

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		unknown, accepted, unavailable = sinks.Unknown, sinks.Accepted, sinks.Unavailable
		rejected, failed               = sinks.Rejected, sinks.Failed
	)
	for _, c := range []struct {
		name      string
		outcomes  []sinks.Outcome
		attempt   int
		want      claim.Verdict
		delivered int
		alone     bool
		reason    string
	}{
		{"nothing left to deliver", nil, 1, claim.Done, 0, false, ""},
		{"all accepted", []sinks.Outcome{accepted, accepted}, 1, claim.Done, 2, false, ""},
		{"unavailable gives the attempt back", []sinks.Outcome{unavailable}, 1, claim.Release, 0, false, ""},
		{"unavailable at the last attempt kills nothing", []sinks.Outcome{unavailable}, 5, claim.Release, 0, false, ""},
		{"unknown is tried alone", []sinks.Outcome{unknown}, 1, claim.Retry, 0, true, ""},
		{"failed counts", []sinks.Outcome{failed}, 4, claim.Retry, 0, false, ""},
		{"failed at the last attempt", []sinks.Outcome{failed}, 5, claim.Dead, 0, false, reasonAttempts},
		{"unknown at the last attempt", []sinks.Outcome{unknown}, 5, claim.Dead, 0, true, reasonAttempts},
		{"rejected is dead at once", []sinks.Outcome{rejected}, 1, claim.Dead, 0, false, reasonRejected},
		{"one accepted, one rejected", []sinks.Outcome{accepted, rejected}, 1, claim.Dead, 1, false, reasonRejected},
		{"rejected waits for the one that is away", []sinks.Outcome{rejected, unavailable}, 1, claim.Release, 0, false, ""},
		{"failed before unavailable", []sinks.Outcome{unavailable, failed}, 1, claim.Retry, 0, false, ""},
		{"unknown before rejected", []sinks.Outcome{rejected, unknown}, 1, claim.Retry, 0, true, ""},
		{"what a sink makes up is unknown", []sinks.Outcome{99}, 1, claim.Retry, 0, false, ""},
		{"attempts already over the limit", []sinks.Outcome{failed}, 9, claim.Dead, 0, false, reasonAttempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var as []attempt
			for i, o := range c.outcomes {
				as = append(as, attempt{to: &destination{text: string(rune('a' + i))}, result: sinks.Result{Outcome: o, Err: errors.New("why")}})
			}
			out, reason, cause := policy{time.Second, time.Minute}.decide(&delivery{lease: &claim.Lease{Attempt: c.attempt, MaxAttempts: 5}, route: &route{}, attempts: as})
			if out.Verdict != c.want || len(out.Delivered) != c.delivered || out.Alone != c.alone || reason != c.reason {
				t.Errorf("got %v delivered %v alone %v reason %q, want %v %d %v %q", out.Verdict, out.Delivered, out.Alone, reason, c.want, c.delivered, c.alone, c.reason)
			}
			if waits := out.Verdict == claim.Release && slices.Contains(c.outcomes, rejected); waits != (out.After >= pauseMin && out.Verdict == claim.Release) {
				t.Errorf("a %v comes back after %v", out.Verdict, out.After)
			}
			if (out.Verdict == claim.Dead || out.Verdict == claim.Retry) && (out.Error == "" || cause == nil) {
				t.Errorf("no reason: %q, cause %v", out.Error, cause)
			}
		})
	}
}

// A destination that rejects for ever is named, and only it.
func TestDecideNamesTheDestination(t *testing.T) {
	t.Parallel()
	out, _, cause := policy{}.decide(&delivery{lease: &claim.Lease{Attempt: 1, MaxAttempts: 5}, route: &route{}, attempts: []attempt{
		{to: &destination{text: "kafka:a"}, result: sinks.Result{Outcome: sinks.Accepted}},
		{to: &destination{text: "sqs:b"}, result: sinks.Result{Outcome: sinks.Rejected, Err: errors.New("too large")}},
	}})
	if out.Error != "sqs:b: too large" || cause.text != "sqs:b" || !slices.Equal(out.Delivered, []string{"kafka:a"}) {
		t.Errorf("got %q, cause %v, delivered %v", out.Error, cause.text, out.Delivered)
	}
}

// B07: no attempt count makes the delay overflow, turn negative or vanish.
func TestB07Delay(t *testing.T) {
	t.Parallel()
	for _, p := range []policy{{10 * time.Second, time.Hour}, {time.Millisecond, math.MaxInt64 / 2}, {time.Hour, time.Hour}} {
		for _, n := range []int{0, 1, 2, 5, 30, 31, 62, 63, 64, 1023, 1100, 32767, 2147483646, 2147483647} {
			d := p.delay(n)
			want := math.Min(math.Pow(2, float64(n))*float64(p.base), float64(p.max))
			if f := float64(d); f < 0.79*want || f > 1.21*want {
				t.Errorf("delay(%d) of %v up to %v: got %v, want about %v", n, p.base, p.max, d, time.Duration(want))
			}
		}
	}
}
