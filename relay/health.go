package relay

import (
	"fmt"
	"sync"
	"time"
)

// Health is what readiness shows.
type Health struct {
	Database     string           `json:"database"` // "ok" or the reason
	Draining     bool             `json:"draining"`
	Listener     string           `json:"listener"`     // "ok", "off" or "away"
	Sinks        map[string]State `json:"sinks"`        // by name
	Destinations map[string]State `json:"destinations"` // by the route's form: the worst of its expanded addresses
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
			if o.names[d.text] || (at.address == "" && d.sink == at.sink) {
				h.Destinations[d.text] = s
			}
		}
	})
	return h
}

// databaseState remembers how the last statements went.
type databaseState struct {
	mu     sync.Mutex
	err    error
	lastOK time.Time
}

// silence is how long the database may say nothing: a statement of the sweep is due every second.
const silence = 10 * time.Second

func (d *databaseState) report(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; err == nil {
		d.lastOK = time.Now()
	}
}

func (d *databaseState) state(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return d.err.Error()
	case d.lastOK.IsZero():
		return "starting"
	case now.Sub(d.lastOK) > silence:
		return fmt.Sprintf("no answer for %v", now.Sub(d.lastOK).Round(time.Second))
	}
	return "ok"
}
