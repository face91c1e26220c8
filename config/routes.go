package config

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Route says where the jobs of some kinds go.
type Route struct {
	Kind  string   // exact, or a pattern with *; not empty
	To    []string // destinations, as written; at least one, none twice
	Order string   // "none" or "key"
	Dead  string   // with Order key: "close" or "skip"; otherwise ""
	Share *int     // 0 to 100; nil when the route doesn't say
}

// mostRouteProblems bounds what one wrong file can print.
const mostRouteProblems = 50

const routesForm = `routes: [{kind: "order.*", to: ["kafka:orders"]}]`

// loadRoutes reads RELAY_ROUTES, or the file that RELAY_ROUTES_FILE names.
func loadRoutes(env Environ, needed bool) ([]Route, Problems) {
	const inline, inFile = "RELAY_ROUTES", "RELAY_ROUTES_FILE"
	text, set := env.get(inline)
	path, fromFile := env.get(inFile)
	switch {
	case set && fromFile:
		return nil, Problems{problem(inFile, path, "is set together with RELAY_ROUTES; keep one")}
	case fromFile:
		text, found := readFile(inFile, path)
		if len(found) > 0 {
			return nil, found
		}
		return parseRoutes(text, func(text string) Problem { return problem(inFile, path, "%s", text) })
	case set:
		return parseRoutes(text, func(text string) Problem { return problemHidden(inline, "%s", text) })
	case needed:
		return nil, Problems{problemHidden(inline, "is required: YAML such as %s, or its file's name in %s", routesForm, inFile)}
	}
	return nil, nil
}

// parseRoutes reads YAML. It walks over the nodes instead of decoding into a struct, so that each problem can name its
// line and route and none hides another. say puts the variable's name in front of a problem.
func parseRoutes(text string, say func(string) Problem) ([]Route, Problems) {
	r := routeReader{say: say, lines: map[string]int{}}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		r.problems = append(r.problems, say(oneLine(err)))
		return nil, r.problems
	}
	if err := decoder.Decode(&second); err == nil {
		r.at(&second, "one YAML document is expected, not several")
	} else if !errors.Is(err, io.EOF) {
		r.problems = append(r.problems, say(oneLine(err)))
	}
	r.document(&document)
	if more := len(r.problems) - mostRouteProblems; more > 0 {
		r.problems = append(r.problems[:mostRouteProblems], say(fmt.Sprintf("%d more problems", more)))
	}
	return r.routes, r.problems
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}

type routeReader struct {
	say      func(string) Problem
	routes   []Route
	problems Problems
	lines    map[string]int // of the kinds seen
}

// at reports a problem of one place.
func (r *routeReader) at(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, r.say(fmt.Sprintf("line %d: ", n.Line)+fmt.Sprintf(format, args...)))
}

// document finds the list of routes: the document itself, or its only field.
func (r *routeReader) document(document *yaml.Node) {
	if len(document.Content) == 0 {
		r.problems = append(r.problems, r.say("no routes; write "+routesForm))
		return
	}
	top := resolve(document.Content[0])
	if top.Kind == yaml.MappingNode {
		var list *yaml.Node
		for name, value := range r.members(top, "") {
			if name.Value == "routes" {
				list = value
			} else {
				r.at(name, "unknown field %s; the only one is routes", quote(name.Value))
			}
		}
		if list == nil {
			r.at(top, "no routes; write %s", routesForm)
			return
		}
		top = list
	}
	if top.Kind != yaml.SequenceNode || len(top.Content) == 0 {
		r.at(top, "routes must be a list of at least one route; write %s", routesForm)
		return
	}
	for i, node := range top.Content {
		r.route(i+1, resolve(node))
	}
}

// members ranges over a mapping's fields and reports those that come twice.
func (r *routeReader) members(mapping *yaml.Node, who string) func(func(name, value *yaml.Node) bool) {
	return func(yield func(name, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			name, value := mapping.Content[i], resolve(mapping.Content[i+1])
			if seen[name.Value] {
				r.at(name, "%sthe field %s comes twice", who, quote(name.Value))
				continue
			}
			seen[name.Value] = true
			if !yield(name, value) {
				return
			}
		}
	}
}

// route reads one route and keeps it, so that what it shares with later ones is seen too.
func (r *routeReader) route(number int, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		r.at(node, "route %d: must have the fields kind and to: %s", number, routesForm)
		return
	}
	one := routeNode{Route: Route{Order: "none"}, reader: r, number: number}
	one.Kind = kindOf(node)
	for name, value := range r.members(node, one.who()) {
		one.field(name, value)
	}
	one.finish(node)
	r.routes = append(r.routes, one.Route)
}

// kindOf looks for the kind first: every problem of the route names it.
func kindOf(route *yaml.Node) string {
	for i := 0; i+1 < len(route.Content); i += 2 {
		if value := resolve(route.Content[i+1]); route.Content[i].Value == "kind" && isText(value) {
			return value.Value
		}
	}
	return ""
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// isText takes scalars as they are written, 007 too, but not null.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null"
}

// share reads a whole number from 0 to 100.
func share(n *yaml.Node) (int, bool) {
	value, err := strconv.ParseUint(n.Value, 10, 7)
	return int(value), isText(n) && err == nil && value <= 100
}
