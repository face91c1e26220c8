package relay

import (
	"time"

	"github.com/jobrelay/relay/claim"
)

// admission is one pass's dealings with the pauses: what it may claim and send, and the trials that it took.
type admission struct {
	pauses *pauses
	router *Router
	lane   *lane
	trials []place
}

// gate says what may be claimed of a pair. A kind whose destinations are all away isn't claimed; where some are, only
// jobs that lack an open one. A destination that comes back without having accepted anything gets one lone job of
// each pair, of which admit lets the first through.
func (a *admission) gate(pair claim.Pair) claim.Gate {
	route := a.router.find(pair.Kind)
	if route == nil || route.lane != a.lane {
		return claim.Gate{}
	}
	var open []string
	g := claim.Gate{}
	for _, d := range route.to {
		is, lone := a.destination(d)
		if is {
			open = append(open, d.text)
		}
		if lone {
			g.Max = 1
		}
	}
	if g.Open = len(open) > 0; g.Open && len(open) < len(route.to) {
		g.Lacking = open
	}
	return g
}

// destination looks at every place that all jobs of the destination share.
func (a *admission) destination(d *destination) (open, lone bool) {
	for _, at := range d.places {
		switch a.pauses.state(at) {
		case paused, probing, trying:
			return false, false
		case trial:
			lone = true
		}
	}
	return true, lone
}

// refusal is why a message can't be sent now.
type refusal struct {
	at     place // what is away
	wait   time.Duration
	reason string
}

// admit says whether a message of a destination may be sent now: nil, or why not. around are the places that it goes
// through. It lets one message into a trial.
func (a *admission) admit(around []place, name string) *refusal {
	taken := len(a.trials)
	for _, at := range around {
		o, ok, lone := a.pauses.enter(at, name)
		if !ok {
			a.untry(taken)
			return &refusal{at, max(time.Until(o.until), pauseMin), o.reason}
		}
		if lone {
			a.trials = append(a.trials, at)
		}
	}
	return nil
}

// untry gives back the trials from the nth on that nothing has ended; done gives back all.
func (a *admission) untry(n int) {
	for _, at := range a.trials[n:] {
		a.pauses.untried(at)
	}
	a.trials = a.trials[:n]
}

func (a *admission) done() { a.untry(0) }
