package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jobrelay/relay/claim"
)

// work is a worker's life: claim a batch, publish it, settle it.
func (r *Relay) work(ctx context.Context, l *lane) {
	for {
		leases, adm := r.next(ctx, l)
		if leases == nil {
			return
		}
		if progress := r.pass(ctx, adm, leases); !progress {
			sleep(ctx, jitter(min(r.PollMax/4, pauseMin))) // nothing could be sent: don't claim the same jobs in a hot loop
		}
	}
}

// pass takes one claimed batch to its end. It says whether any job got further than being given back.
func (r *Relay) pass(ctx context.Context, adm *admission, leases []claim.Lease) (progress bool) {
	defer adm.done()
	hold := r.keep(leases)
	batch := r.publish(ctx, adm, hold, leases)
	outcomes := make([]claim.Outcome, 0, len(batch))
	verdicts := make([]verdict, 0, len(batch))
	runs := false
	for _, d := range batch {
		out, reason, cause := r.policy.decide(d)
		out.Late = hold.isLost(d.lease.ID) // the fence decides: what was accepted is done if nobody else has it
		runs = runs || d.run != nil
		outcomes = append(outcomes, out)
		verdicts = append(verdicts, verdict{d, out, reason, cause})
		progress = progress || out.Verdict != claim.Release || len(out.Delivered) > 0
	}
	r.settle(hold, outcomes, verdicts)
	hold.release()
	if runs {
		adm.lane.hint() // what waited for these jobs' keys can be claimed
	}
	return progress
}

// verdict is a settled delivery, for metrics and logs.
type verdict struct {
	*delivery
	out    claim.Outcome
	reason string
	cause  *destination
}

// claim takes a batch. It isn't cut short by a shutdown, which would leave what it claimed to its lease: the pass gives it
// back.
func (r *Relay) claim(adm *admission) ([]claim.Lease, error) {
	ctx, cancel := context.WithTimeout(r.drain.work, claimTimeout)
	defer cancel()
	leases, err := r.queue.Claim(ctx, adm.gate)
	r.database.report("claims of lane "+adm.lane.name, err)
	if err == nil {
		r.metrics.claimed(leases)
	}
	return leases, err
}

// settle writes the outcomes. The batch is held meanwhile; when the database doesn't come back for two leases the jobs
// are left to it: what was sent will be sent again.
func (r *Relay) settle(hold *hold, outcomes []claim.Outcome, verdicts []verdict) {
	if len(outcomes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.drain.work, 2*r.batch.Lease)
	defer cancel()
	lost, err := r.queue.Settle(ctx, outcomes)
	r.database.report(sourceSettle, err)
	if err != nil {
		if r.drain.draining.Load() { // earlier ones have long come back
			r.drain.gaveUp.Store(true)
		}
		r.Log.Error("could not settle a batch; its jobs come back when their leases end", "jobs", len(outcomes), "error", err)
		return
	}
	written := slices.DeleteFunc(verdicts, func(v verdict) bool { return slices.Contains(lost, v.lease.ID) })
	lost = slices.DeleteFunc(lost, hold.isLost) // that has been said
	r.metrics.lost(len(lost))
	if len(lost) > 0 {
		r.Log.Warn("leases were lost before their jobs were settled; nothing was changed", "jobs", len(lost), "job_id", lost[0])
	}
	r.metrics.settled(written)
	r.logDead(written)
}

// logDead writes one line for a batch, whatever it holds: a thousand dead jobs are not a thousand lines.
func (r *Relay) logDead(verdicts []verdict) {
	n, first := 0, verdict{}
	for _, v := range verdicts {
		if v.out.Verdict == claim.Dead {
			if n++; n == 1 {
				first = v
			}
		}
	}
	if n > 0 {
		r.Log.Warn("jobs are dead", "jobs", n, "job_id", first.lease.ID, "kind", first.lease.Kind, "attempt", first.lease.Attempt, "error", first.out.Error)
	}
}

// claimTimeout bounds one claim; a claim is a few milliseconds, this is for a database that hangs.
const claimTimeout = 30 * time.Second

// errStopping is why messages of a batch in hand weren't sent.
var errStopping = errors.New("the relay is stopping")

// margin is how long before a lease's end its batch must be out of the broker's hands, to be settled in time.
func margin(lease time.Duration) time.Duration { return min(lease/10, 2*time.Second) }
