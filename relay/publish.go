package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// delivery is a job in hand and what became of it at each destination that lacks it.
type delivery struct {
	lease    *claim.Lease
	route    *route
	run      *keyRun // nil when no order is kept
	attempts []attempt
	messages []sinks.Message // by attempt
}

// publish sends a batch and returns what every destination said of every job. Where the order of keys is kept it goes
// in steps: the first takes all jobs that are free and the beginning of each run. What wasn't sent because the relay
// stops, a destination is away, the lease ends or an older job of its key failed is Unavailable.
func (r *Relay) publish(ctx context.Context, adm *admission, h *hold, leases []claim.Lease) []*delivery {
	batch := make([]*delivery, len(leases))
	for i := range leases {
		batch[i] = r.address(&leases[i])
	}
	for runs, step := runs(batch); ; step = nil {
		for _, n := range runs {
			step = append(step, n.step()...)
		}
		if len(step) == 0 {
			return batch
		}
		r.sendApart(ctx, adm, h, step)
		for _, n := range runs {
			n.check()
		}
	}
}

// sendApart sends jobs together, but for those marked alone: these go one by one, after the others.
func (r *Relay) sendApart(ctx context.Context, adm *admission, h *hold, jobs []*delivery) {
	together := make([]*delivery, 0, len(jobs))
	var alone []*delivery
	for _, d := range jobs {
		if d.lease.Alone {
			alone = append(alone, d)
		} else {
			together = append(together, d)
		}
	}
	r.send(ctx, adm, h, together)
	for i := range alone {
		r.send(ctx, adm, h, alone[i:i+1])
	}
}

// address makes the messages of a job: one for each destination that has not accepted it yet. A job that can't be a
// message is rejected there, by the rule that it breaks.
func (r *Relay) address(l *claim.Lease) *delivery {
	d := &delivery{lease: l}
	route := r.router.find(l.Kind)
	if route == nil {
		return d
	}
	d.route = route
	common, err := message(r.Source, l)
	common.Ordered = route.order.keys && l.Key != nil
	if l.Fault != nil {
		err = l.Fault
	}
	for _, to := range route.to {
		if slices.Contains(l.Delivered, to.text) {
			continue
		}
		a := attempt{to: to, result: sinks.Result{Outcome: sinks.Unavailable, Err: errStopping}}
		m := common
		if err == nil {
			if m.Address, a.result.Err = r.expand(to, l, common.Headers); a.result.Err != nil {
				a.result.Outcome = sinks.Rejected
			} else {
				a.result.Err = errStopping
			}
		} else {
			a.result = sinks.Result{Outcome: sinks.Rejected, Err: err}
		}
		d.attempts, d.messages = append(d.attempts, a), append(d.messages, m)
	}
	return d
}

// expand gives the job's address at a destination and has the sink's rules checked where it depends on the job.
func (r *Relay) expand(to *destination, l *claim.Lease, hs []sinks.Header) (string, error) {
	address, err := to.address.expand(l, hs)
	if err != nil || to.address.fixed() {
		return address, err
	}
	return address, r.Addresses[to.sink].check(address)
}

// around lists the places that a message to an address goes through, the widest first.
func (r *Relay) around(sink, address string) []place {
	return around(sink, r.Addresses[sink].parent(address), address)
}

// parcel is a message on its way and where its result belongs.
type parcel struct {
	attempt *attempt
	message sinks.Message
}

// send publishes jobs to all their destinations, the sinks side by side.
func (r *Relay) send(ctx context.Context, adm *admission, h *hold, jobs []*delivery) {
	ends := h.ends().Add(-margin(r.batch.Lease))
	if len(jobs) == 0 || ctx.Err() != nil {
		return
	}
	parcels := map[string][]parcel{}
	for _, d := range jobs {
		if d.run != nil && d.run.held {
			d.leave(errBehind)
			continue
		}
		lost := h.isLost(d.lease.ID)
		for i := range d.attempts {
			a := &d.attempts[i]
			if !lost && r.sendable(adm, a, d.messages[i].Address, ends) {
				parcels[a.to.sink] = append(parcels[a.to.sink], parcel{a, d.messages[i]})
			} else if d.run != nil {
				d.run.held = true
			}
		}
	}
	sending, cancel := context.WithDeadline(r.drain.send, earlier(time.Now().Add(r.PublishTimeout), ends))
	defer cancel()
	var all sync.WaitGroup
	for name, ps := range parcels {
		all.Go(func() { r.deliver(sending, name, ps) })
	}
	all.Wait()
}

// sendable says whether the message may go out now, and notes why not.
func (r *Relay) sendable(adm *admission, a *attempt, address string, ends time.Time) bool {
	if a.result.Outcome == sinks.Rejected {
		return false
	}
	if !time.Now().Before(ends) {
		a.result.Err = errors.New("its lease ended before it was sent")
		return false
	}
	if r.pauses.calm() {
		return true
	}
	no := adm.admit(r.around(a.to.sink, address), a.to.text)
	if no != nil {
		a.result.Err = fmt.Errorf("paused: %s", no.reason)
		a.pause, a.apart = jitter(no.wait), !slices.Contains(a.to.places, no.at)
	}
	return no == nil
}

// deliver publishes to one sink and takes its word.
func (r *Relay) deliver(ctx context.Context, name string, ps []parcel) {
	batch := make([]sinks.Message, len(ps))
	for i, p := range ps {
		batch[i] = p.message
	}
	results := make([]sinks.Result, len(ps))
	start := time.Now()
	r.calls[name].publish(ctx, r.Sinks[name], batch, results)
	r.metrics.published(name, time.Since(start), batch, results)
	r.learn(name, ps, results)
	for i, p := range ps {
		p.attempt.result = results[i]
	}
}

// learn tells the pauses what the results say of the sink and its addresses. What was accepted comes first: a
// connection that broke half way is away. A rejection says nothing: the sink's own rules may have made it.
func (r *Relay) learn(name string, ps []parcel, results []sinks.Result) {
	failed := false
	for i, res := range results {
		word := r.pauses.accepted
		switch res.Outcome {
		case sinks.Accepted:
		case sinks.Failed:
			word = r.pauses.answered
		case sinks.Rejected:
			continue
		default:
			failed = true
			continue
		}
		if r.pauses.calm() {
			continue
		}
		for _, at := range r.around(name, ps[i].message.Address) {
			word(at)
		}
	}
	if !failed {
		return
	}
	for i, res := range results {
		if res.Outcome != sinks.Unavailable && res.Outcome != sinks.Unknown || res.Scope == sinks.ScopeMessage {
			continue
		}
		places := r.around(name, ps[i].message.Address)
		r.pauses.fail(places[:concerns(places, res.Scope)+1], ps[i].attempt.to.text, res.Outcome, res.Err)
	}
}

// concerns says which of a message's places a result is about. Where there is no wider place that is the address.
func concerns(places []place, scope sinks.Scope) int {
	switch scope {
	case sinks.ScopeSink:
		return 0
	case sinks.ScopeParent:
		return min(1, len(places)-1)
	}
	return len(places) - 1
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
