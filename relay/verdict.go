package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// attempt is what became of one job at one destination in one pass.
type attempt struct {
	to     *destination
	result sinks.Result
	pause  time.Duration // its place is paused for so long
	apart  bool          // only its address is, which other jobs of the kind needn't share
}

// Reasons of a dead job, the closed list that metrics name.
const (
	reasonRejected = "rejected"      // a destination can never accept it
	reasonAttempts = "attempts"      // its attempts are used up
	reasonLease    = "lease_expired" // its attempts are used up and the last holder vanished
)

// policy is what the verdict needs to know of the settings.
type policy struct{ base, max time.Duration }

// decide is the whole policy: what becomes of a job, by what each destination that still lacked it said. reason is
// set with Dead, cause is the destination that decided.
//
//	no route               release: nobody was asked
//	any Failed or Unknown  retry, or dead when the attempts are used up
//	else any Unavailable   release: the broker has definitely not taken it, the attempt is given back; until the
//	                       pause ends, where claims would bring the job again before
//	else any Rejected      dead, while the other destinations have it
//	else                   done
func (p policy) decide(d *delivery) (out claim.Outcome, reason string, cause *destination) {
	if d.route == nil {
		return claim.Outcome{Lease: d.lease, Verdict: claim.Release}, "", nil
	}
	l := d.lease
	out = claim.Outcome{Lease: l, Verdict: claim.Done}
	worst := sinks.Accepted
	var pause time.Duration
	rejected, apart := false, false
	for _, a := range d.attempts {
		switch o := a.result.Outcome; {
		case o == sinks.Accepted:
			out.Delivered = append(out.Delivered, a.to.text)
		case rank(o) > rank(worst):
			worst, cause = o, a.to
		}
		out.Alone = out.Alone || a.result.Outcome == sinks.Unknown
		rejected = rejected || a.result.Outcome == sinks.Rejected
		apart = apart || a.apart
		pause = max(pause, a.pause)
	}
	switch worst {
	case sinks.Accepted:
		return out, "", nil
	case sinks.Unavailable:
		out.Verdict = claim.Release
		// A destination that is paused as a whole keeps its kind from being claimed, but not for one that is open: what
		// that one rejects would come again at once, for ever, and before all others.
		if apart || rejected {
			out.After, out.Error = max(pause, pauseMin), explain(d.attempts)
		}
		return out, "", cause
	case sinks.Rejected:
		out.Verdict, out.Error, reason = claim.Dead, explain(d.attempts), reasonRejected
	default:
		out.Verdict, out.Error, out.After = claim.Retry, explain(d.attempts), p.delay(l.Attempt)
		if l.Attempt >= l.MaxAttempts {
			out.Verdict, reason = claim.Dead, reasonAttempts
		}
	}
	return out, reason, cause
}

// rank orders outcomes by what they demand of the job.
func rank(o sinks.Outcome) int {
	switch o {
	case sinks.Accepted:
		return 0
	case sinks.Rejected:
		return 1
	case sinks.Unavailable:
		return 2
	case sinks.Failed:
		return 3
	default: // Unknown, and whatever a sink makes up
		return 4
	}
}

// delay is min(2^attempts × base, max) ± 20 %, by doubling, so that no attempt count overflows.
func (p policy) delay(attempts int) time.Duration {
	d := p.base
	for range attempts {
		if d >= p.max/2 {
			d = p.max
			break
		}
		d *= 2
	}
	return jitter(min(d, p.max))
}

// explain names every destination that hasn't accepted the job and why.
func explain(attempts []attempt) string {
	var parts []string
	for _, a := range attempts {
		switch r := a.result; {
		case r.Outcome == sinks.Accepted:
		case r.Err == nil && r.Outcome == sinks.Unknown:
			parts = append(parts, a.to.text+": no word from the broker")
		default:
			parts = append(parts, fmt.Sprintf("%s: %v", a.to.text, r.Err))
		}
	}
	return strings.Join(parts, "; ")
}
