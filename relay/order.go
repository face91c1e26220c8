package relay

import (
	"errors"
	"fmt"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// order is how a route keeps the order of keys.
type order struct {
	keys  bool
	skip  bool // a dead job lets its key go on
	whole bool // a run may go out in one call: its only sink keeps the order of it
}

// stepsMost bounds the jobs of one key in a claim where each waits for the word on the one before: they hold up the
// settlement of the whole batch.
const stepsMost = 32

// keepOrder takes over what the route says of order.
func (c *route) keepOrder(given Route) (errs []error) {
	switch given.Order {
	case "", "none":
	case "key":
		c.order.keys = true
	default:
		errs = append(errs, fmt.Errorf("order: %q is neither none nor key", given.Order))
	}
	switch given.Dead {
	case "", "close":
	case "skip":
		c.order.skip = true
	default:
		errs = append(errs, fmt.Errorf("dead: %q is neither close nor skip", given.Dead))
	}
	return errs
}

// sequence finds the routes whose runs can be sent whole.
func (r *Router) sequence(all map[string]sinks.Sink) {
	for _, c := range r.routes {
		if len(c.to) == 1 {
			_, c.order.whole = all[c.to[0].sink].(sinks.Sequencer)
		}
	}
}

// orderOf says how the jobs of a kind are to be claimed.
func (r *Router) orderOf(kind string) claim.Order {
	c := r.find(kind)
	if c == nil || !c.order.keys {
		return claim.Order{}
	}
	o := claim.Order{Keys: true, Skip: c.order.skip}
	if !c.order.whole {
		o.Run = stepsMost
	}
	return o
}

// keyRun is what a batch holds of one key whose order is kept, oldest first. Nothing of it is sent behind a job that not
// all destinations have accepted.
type keyRun struct {
	jobs  []*delivery
	whole bool // may be sent in one call
	out   int  // the first that is out and has no result yet
	next  int  // the first that is still to be sent
	held  bool // a job of it wasn't accepted: the rest stays
}

// errBehind is why the rest of a run wasn't sent.
var errBehind = errors.New("not sent: an older job of its key is not delivered")

// runs finds the runs of a batch, which is sorted by id; the other jobs are free.
func runs(batch []*delivery) (all []*keyRun, free []*delivery) {
	type name struct{ kind, key string }
	known := map[name]*keyRun{}
	for _, d := range batch {
		if d.route == nil || !d.route.order.keys || d.lease.Key == nil {
			free = append(free, d)
			continue
		}
		at := name{d.lease.Kind, *d.lease.Key}
		if known[at] == nil {
			known[at] = &keyRun{whole: d.route.order.whole}
			all = append(all, known[at])
		}
		d.run = known[at]
		d.run.jobs = append(d.run.jobs, d)
	}
	return all, free
}

// step returns what may be sent of the run now: all up to the next job that must go by itself when the sink keeps the
// order, else one. Where a job wasn't accepted the run ends.
func (n *keyRun) step() []*delivery {
	n.out = n.next
	for n.next < len(n.jobs) {
		if n.next > n.out && !(n.whole && n.jobs[n.next].follows(n.jobs[n.next-1])) {
			break
		}
		n.next++
	}
	return n.jobs[n.out:n.next]
}

// follows: both can be sent together, and to the same place, so that its sink can keep their order.
func (d *delivery) follows(before *delivery) bool {
	for _, one := range []*delivery{d, before} {
		if one.lease.Alone || len(one.attempts) != 1 || one.attempts[0].result.Outcome == sinks.Rejected {
			return false
		}
	}
	return d.messages[0].Address == before.messages[0].Address
}

// check ends the run if one of the jobs that were out isn't delivered.
func (n *keyRun) check() {
	for _, d := range n.jobs[n.out:n.next] {
		n.held = n.held || !d.accepted()
	}
	if !n.held {
		return
	}
	for ; n.next < len(n.jobs); n.next++ {
		n.jobs[n.next].leave(errBehind)
	}
}

// accepted: every destination has the job.
func (d *delivery) accepted() bool {
	for _, a := range d.attempts {
		if a.result.Outcome != sinks.Accepted {
			return false
		}
	}
	return true
}

// leave gives the job back unsent, whatever is wrong with it: its turn hasn't come.
func (d *delivery) leave(why error) {
	for i := range d.attempts {
		d.attempts[i].result = sinks.Result{Outcome: sinks.Unavailable, Err: why}
	}
}
