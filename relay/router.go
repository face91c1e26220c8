package relay

import "slices"

// What a compiled router answers.

// find returns the first route that matches the kind, nil when it is somebody else's.
func (r *Router) find(kind string) *route {
	for _, c := range r.routes {
		if c.match.matches(kind) {
			return c
		}
	}
	return nil
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

// Destinations lists every destination once, in the order of the routes.
func (r *Router) Destinations() []Destination {
	var out []Destination
	for _, d := range r.destinations() {
		address, fixed := d.fixed()
		out = append(out, Destination{Text: d.text, Sink: d.sink, Address: address, Fixed: fixed, Parent: d.parent})
	}
	return out
}

// destinations lists every destination once, in the order of the routes.
func (r *Router) destinations() []*destination {
	var out []*destination
	seen := map[string]bool{}
	for _, c := range r.routes {
		for _, d := range c.to {
			if !seen[d.text] {
				seen[d.text] = true
				out = append(out, d)
			}
		}
	}
	return out
}

// places lists those that destinations name without a job.
func (r *Router) places() map[place]bool {
	out := map[place]bool{}
	for _, d := range r.destinations() {
		for _, at := range d.places {
			out[at] = true
		}
	}
	return out
}

// Closes says whether the kind's route keeps the order of keys and lets a dead job hold its key.
func (r *Router) Closes(kind string) bool { return r.orderOf(kind).Closes() }

// Ordered says whether any route keeps the order of keys.
func (r *Router) Ordered() bool {
	return slices.ContainsFunc(r.routes, func(c *route) bool { return c.order.keys })
}

// share is the percentage of a kind's keys that the relay owns when nothing else was set for the kind.
func (r *Router) share(kind string) int {
	if c := r.find(kind); c != nil {
		return c.share
	}
	return 0
}

// Share returns what the route of a kind says of its share; false when it says nothing, or there is no route.
func (r *Router) Share(kind string) (percent int, says bool) {
	if c := r.find(kind); c != nil {
		return c.share, c.says
	}
	return 0, false
}

// ExactKinds lists the kinds that routes name without a star.
func (r *Router) ExactKinds() (kinds []string) {
	for _, c := range r.routes {
		if kind, ok := c.match.exact(); ok {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
