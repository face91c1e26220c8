package relay

import (
	"fmt"
	"slices"
	"strings"
)

// Route says where the jobs of some kinds go. Compile with [NewRouter] to see what is wrong with a list of them.
type Route struct {
	Kind  string   // exact, or with * for any run of characters, dots too; \* is a star
	To    []string // destinations sink:address; the address may hold {kind}, {key}, {header.NAME}; {{ is a brace
	Order string   // "key": the jobs of a kind and key one after the other; "" or "none": as they come
	Dead  string   // with Order "key", what a dead job does to its key: "close" (default) holds it, "skip" lets it go on
	Share *int     // percentage of the keys that the relay owns, written when a kind is first seen; default 100
}

// Router finds the route of a kind: the first that matches.
type Router struct {
	routes []*route
	lanes  []*lane
}

// route is a compiled [Route].
type route struct {
	text  string
	match pattern
	to    []*destination
	share int
	says  bool // the share is the route's own, not the default
	order order
	lane  *lane
}

// Addresses are what a sink knows of its addresses, as [sinks.Settings] and [sinks.Parented] have it.
type Addresses struct {
	Check  func(address string) error  // why one can never be valid, which is the job's fault; nil: all are
	Parent func(address string) string // the wider place that one lies in, "" is none; nil: there are none
}

func (a Addresses) check(address string) error {
	if a.Check == nil {
		return nil
	}
	return a.Check(address)
}

func (a Addresses) parent(address string) string {
	if a.Parent == nil {
		return ""
	}
	return a.Parent(address)
}

// destination is one place a route leads to. Its text, as written in the route, is its name in delivered, metrics
// and filters; the address becomes concrete with each job.
type destination struct {
	text    string
	sink    string
	address template
	parent  string  // the wider place that all jobs share, "" when there is none
	places  []place // all that they share, the widest first
}

// fixed returns the address when all jobs share it.
func (d *destination) fixed() (string, bool) {
	if !d.address.fixed() {
		return "", false
	}
	address, err := d.address.expand(nil, nil)
	return address, err == nil
}

// NewRouter compiles the routes. Each problem is one error whose text names the route ("route 2 (order.*): …"),
// the value and the rule. warnings tell of routes hidden by earlier ones. addresses (by sink name) is asked about
// each address, with a letter in the place of each value of a job; a destination of a sink that it lacks is a problem.
func NewRouter(routes []Route, addresses map[string]Addresses) (r *Router, problems []error, warnings []string) {
	r = &Router{}
	for i, given := range routes {
		c, errs := compileRoute(given, addresses)
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("route %d (%s): %w", i+1, given.Kind, err))
		}
		for j, earlier := range r.routes {
			if earlier.match.covers(c.match) {
				warnings = append(warnings, fmt.Sprintf("route %d (%s) is never used: route %d (%s) comes first and matches all of it", i+1, given.Kind, j+1, earlier.text))
				break
			}
		}
		c.lane = r.laneOf(c)
		r.routes = append(r.routes, c)
	}
	return r, problems, warnings
}

func compileRoute(given Route, addresses map[string]Addresses) (*route, []error) {
	c := &route{text: given.Kind, share: 100}
	var errs []error
	var err error
	if c.match, err = compilePattern(given.Kind); err != nil {
		errs = append(errs, err)
	}
	if len(given.To) == 0 {
		errs = append(errs, fmt.Errorf("to: at least one destination is needed"))
	}
	for _, text := range given.To {
		d, err := compileDestination(text, addresses)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("to: %q: %w", text, err))
		case slices.ContainsFunc(c.to, func(o *destination) bool { return o.text == text }):
			errs = append(errs, fmt.Errorf("to: %q is named twice", text))
		default:
			c.to = append(c.to, d)
		}
	}
	errs = append(errs, c.keepOrder(given)...)
	if given.Share != nil {
		if c.share, c.says = *given.Share, true; c.share < 0 || c.share > 100 {
			errs = append(errs, fmt.Errorf("share: %d is not between 0 and 100", c.share))
		}
	}
	return c, errs
}

func compileDestination(text string, addresses map[string]Addresses) (*destination, error) {
	sink, address, ok := strings.Cut(text, ":")
	if !ok || sink == "" {
		return nil, fmt.Errorf("a destination is written sink:address, as in kafka:orders")
	}
	rules, known := addresses[sink]
	if !known {
		return nil, fmt.Errorf("there is no sink %q", sink)
	}
	t, err := compileTemplate(address)
	if err != nil {
		return nil, err
	}
	sample := t.sample(sampleValue)
	if err := rules.check(sample); err != nil && !t.fixed() {
		return nil, fmt.Errorf("with %s for each value of the job: %w", sampleValue, err)
	} else if err != nil {
		return nil, err
	}
	d := &destination{text: text, sink: sink, address: t}
	if parent := rules.parent(sample); parent == rules.parent(t.sample(otherValue)) { // no value of a job is in it
		d.parent = parent
	}
	fixed, _ := d.fixed()
	d.places = around(sink, d.parent, fixed)
	return d, nil
}

// laneOf finds or makes the lane for the sinks that a route leads to.
func (r *Router) laneOf(c *route) *lane {
	var names []string
	for _, d := range c.to {
		names = append(names, d.sink)
	}
	slices.Sort(names)
	name := strings.Join(slices.Compact(names), "+")
	for _, l := range r.lanes {
		if l.name == name {
			return l
		}
	}
	l := newLane(name)
	r.lanes = append(r.lanes, l)
	return l
}

// find returns the first route that matches the kind, nil when it is somebody else's.
func (r *Router) find(kind string) *route {
	for _, c := range r.routes {
		if c.match.matches(kind) {
			return c
		}
	}
	return nil
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
