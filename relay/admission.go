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
	places := []place{{d.sink, ""}}
	if address, ok := d.fixed(); ok && address != "" {
		places = append(places, place{d.sink, address})
	}
	for _, at := range places {
		switch a.pauses.state(at) {
		case paused, probing, trying:
			return false, false
		case trial:
			lone = true
		}
	}
	return true, lone
}

// admit says whether a message may be sent to the address now, or why not and for how long it waits. It lets one
// message into a trial.
func (a *admission) admit(sink, address string) (wait time.Duration, reason string, ok bool) {
	taken := len(a.trials)
	for _, at := range []place{{sink, ""}, {sink, address}} {
		o, ok, lone := a.pauses.enter(at)
		if !ok {
			a.untry(taken)
			return max(time.Until(o.until), pauseMin), o.reason, false
		}
		if lone {
			a.trials = append(a.trials, at)
		}
		if address == "" {
			break
		}
	}
	return 0, "", true
}

// untry gives back the trials from the nth on that nothing has ended; done gives back all.
func (a *admission) untry(n int) {
	for _, at := range a.trials[n:] {
		a.pauses.untried(at)
	}
	a.trials = a.trials[:n]
}

func (a *admission) done() { a.untry(0) }
