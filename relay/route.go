package relay

// Router finds the route of a kind.
type Router struct{}

// NewRouter compiles the routes. Each problem is one error whose text names the route ("route 2 (order.*): …"),
// the value and the rule. warnings tell of routes hidden by earlier ones. checkAddress (by sink name) is asked about
// each address; an unknown sink is a problem.
func NewRouter(routes []Route, checkAddress map[string]func(address string) error) (r *Router, problems []error, warnings []string) {
	panic("unwritten")
}
