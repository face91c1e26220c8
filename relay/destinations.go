package relay

import "slices"

// Destination is one place that routes lead to.
type Destination struct {
	Text    string // as the route writes it: its name in delivered, metrics and filters
	Sink    string
	Address string // "" when it depends on the job
	Fixed   bool   // all jobs share the address
	Parent  string // the wider place that all jobs share, as [sinks.Parented] names it; "" when there is none
}

// Destinations lists every destination once, in the order of the routes.
func (r *Router) Destinations() []Destination {
	var out []Destination
	for _, d := range r.destinations() {
		address, fixed := d.fixed()
		out = append(out, Destination{Text: d.text, Sink: d.sink, Address: address, Fixed: fixed, Parent: d.parent})
	}
	return out
}

// Closes says whether the kind's route keeps the order of keys and lets a dead job hold its key.
func (r *Router) Closes(kind string) bool {
	c := r.find(kind)
	return c != nil && c.order.keys && !c.order.skip
}

// Ordered says whether any route keeps the order of keys.
func (r *Router) Ordered() bool {
	return slices.ContainsFunc(r.routes, func(c *route) bool { return c.order.keys })
}

// Serves says whether a route matches the kind.
func (r *Router) Serves(kind string) bool { return r.find(kind) != nil }

// To lists the destinations of a kind as its route writes them; none when no route matches.
func (r *Router) To(kind string) (to []string) {
	if c := r.find(kind); c != nil {
		for _, d := range c.to {
			to = append(to, d.text)
		}
	}
	return to
}
