package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// longestKind is the longest kind that the jobs table takes, in bytes.
const longestKind = 255

// routeNode is a route while it's read.
type routeNode struct {
	Route
	reader   *routeReader
	number   int
	hasTo    bool
	deadNode *yaml.Node
}

// who begins the problems of this route.
func (o *routeNode) who() string {
	if o.Kind == "" {
		return fmt.Sprintf("route %d: ", o.number)
	}
	return fmt.Sprintf("route %d (%s): ", o.number, shorten(o.Kind))
}

func shorten(text string) string {
	quoted := quote(text)
	if quoted == `"`+text+`"` {
		return text
	}
	return quoted
}

func (o *routeNode) at(n *yaml.Node, format string, args ...any) {
	o.reader.at(n, "%s", o.who()+fmt.Sprintf(format, args...))
}

func (o *routeNode) field(name, value *yaml.Node) {
	switch name.Value {
	case "kind":
		if !isText(value) || value.Value == "" || len(value.Value) > longestKind {
			o.at(value, "kind must be text of 1 to %d bytes", longestKind)
		} else if !storable(value) {
			o.at(value, "kind holds a NUL character, which Postgres can't store")
		}
	case "to":
		o.hasTo = true
		o.to(value)
	case "order":
		o.word(value, "order", &o.Order, "none", "key")
	case "dead":
		o.deadNode = value
		o.word(value, "dead", &o.Dead, "close", "skip")
	case "share":
		percent, ok := share(value)
		if !ok {
			o.at(value, "share must be a whole number from 0 to 100, not %s", quote(value.Value))
		}
		o.Share = &percent
	default:
		o.at(name, "unknown field %s; there are kind, to, order, dead and share", quote(name.Value))
	}
}

func (o *routeNode) to(value *yaml.Node) {
	if value.Kind != yaml.SequenceNode || len(value.Content) == 0 {
		o.at(value, `to must be a list of at least one destination: to: ["kafka:orders"]`)
		return
	}
	for _, node := range value.Content {
		node = resolve(node)
		switch {
		case node.Kind == yaml.MappingNode:
			o.at(node, `a destination must be in quotes when it ends in a colon: to: ["discard:"]`)
		case !isText(node) || node.Value == "":
			o.at(node, `a destination must be text of the form sink:address`)
		case !storable(node):
			o.at(node, "a destination holds a NUL character, which Postgres can't store")
		case slices.Contains(o.To, node.Value):
			o.at(node, "the destination %s comes twice", quote(node.Value))
		default:
			o.To = append(o.To, node.Value)
		}
	}
}

// storable says whether Postgres takes a text: a kind is looked for there, and a destination is noted on its jobs.
func storable(n *yaml.Node) bool { return !strings.Contains(n.Value, "\x00") }

func (o *routeNode) word(value *yaml.Node, name string, into *string, words ...string) {
	if !isText(value) || !slices.Contains(words, value.Value) {
		o.at(value, "%s must be %s, not %s", name, list(words, "or"), quote(value.Value))
		return
	}
	*into = value.Value
}

// finish checks what concerns the whole route, and those before it.
func (o *routeNode) finish(node *yaml.Node) {
	if o.Kind == "" && !hasField(node, "kind") {
		o.at(node, "the field kind is missing")
	}
	if !o.hasTo {
		o.at(node, "the field to is missing")
	}
	if o.deadNode != nil && o.Order != "key" {
		o.at(o.deadNode, "dead needs order: key; without an order a dead job holds nobody up")
	}
	if o.deadNode == nil && o.Order == "key" {
		o.Dead = "close"
	}
	if line, ok := o.reader.lines[o.Kind]; ok && o.Kind != "" {
		o.at(node, "the same kind as the route in line %d", line)
		return
	}
	o.reader.lines[o.Kind] = node.Line
}

func hasField(mapping *yaml.Node, name string) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return true
		}
	}
	return false
}
