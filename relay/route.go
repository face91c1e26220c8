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
