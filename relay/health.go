package relay

import (
	"slices"
	"time"
)

// Health is what readiness shows.
type Health struct {
	Database     string           `json:"database"` // "ok" or the reason
	Draining     bool             `json:"draining"`
	Listener     string           `json:"listener"`     // "ok", "off" or "away"
	Sinks        map[string]State `json:"sinks"`        // by name
	Destinations map[string]State `json:"destinations"` // by the route's form: what has been away longest of its places
}

// State of a sink or destination. Up is false from the failure until a probe succeeds.
type State struct {
	Up     bool      `json:"up"`
	Reason string    `json:"reason,omitempty"` // what paused it
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"next_try,omitzero"`
}

// Ready: the database is usable and the relay doesn't drain.
func (h Health) Ready() bool { return h.Database == "ok" && !h.Draining }

// Degraded: it is ready, but a sink or destination is away.
func (h Health) Degraded() bool {
	for _, all := range []map[string]State{h.Sinks, h.Destinations} {
		for _, s := range all {
			if !s.Up {
				return true
			}
		}
	}
	return false
}

// Health may be called at any time, also before and after Run. It doesn't block.
func (r *Relay) Health() Health {
	h := Health{
		Database: r.database.state(time.Now()), Draining: r.drain.draining.Load(), Listener: r.listening.Load().(string),
		Sinks: map[string]State{}, Destinations: map[string]State{},
	}
	for name := range r.Sinks {
		h.Sinks[name] = State{Up: true}
	}
	all := r.router.destinations()
	for _, d := range all {
		h.Destinations[d.text] = State{Up: true}
	}
	r.pauses.each(func(at place, o outage) {
		s := State{Reason: o.reason, Since: o.since.UTC(), Until: o.until.UTC()}
		if at.address == "" {
			h.Sinks[at.sink] = s
		}
		for _, d := range all {
			if slices.Contains(d.places, at) || o.names[d.text] {
				h.Destinations[d.text] = h.Destinations[d.text].worse(s)
			}
		}
	})
	return h
}

// worse is what has been away for longer.
func (s State) worse(than State) State {
	if s.Up || than.Since.Before(s.Since) {
		return than
	}
	return s
}
