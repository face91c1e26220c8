package relay

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

func TestB25PatternMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, kind string
		want          bool
	}{
		{"order.created", "order.created", true},
		{"order.created", "Order.created", false},
		{"order.*", "order.created", true},
		{"order.*", "order.item.added", true},
		{"order.*", "order.", true},
		{"order.*", "order", false},
		{"*", "anything at all", true},
		{"*.created", "order.created", true},
		{"*.created", "order.created.twice", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"**", "x", true},
		{`2\*3`, "2*3", true},
		{`2\*3`, "2+3", false},
		{`a\\b`, `a\b`, true},
		{"é*", "émile", true},
	} {
		p, err := compilePattern(c.pattern)
		if err != nil {
			t.Fatalf("compilePattern(%q): %v", c.pattern, err)
		}
		if got := p.matches(c.kind); got != c.want {
			t.Errorf("pattern %q, kind %q: got %v, want %v", c.pattern, c.kind, got, c.want)
		}
	}
}

func TestPatternRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", `a\b`, `a\`} {
		if _, err := compilePattern(s); err == nil {
			t.Errorf("compilePattern(%q) was accepted", s)
		}
	}
}

func TestPatternCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		earlier, later string
		want           bool
	}{
		{"*", "order.*", true},
		{"order.*", "order.created", true},
		{"order.*", "order.*", true},
		{"order.*", "*", false},
		{"order.*", "order*", false},
		{"order*", "order.*", true},
		{"a*c", "a*b*c", true},
		{"a*b*c", "a*c", false},
		{`\*`, "*", false},
	} {
		a, _ := compilePattern(c.earlier)
		b, _ := compilePattern(c.later)
		if got := a.covers(b); got != c.want {
			t.Errorf("%q covers %q: got %v, want %v", c.earlier, c.later, got, c.want)
		}
	}
}

func anyAddress(names ...string) map[string]Addresses {
	m := map[string]Addresses{}
	for _, n := range names {
		m[n] = Addresses{}
	}
	return m
}

func TestRouterTakesTheFirstRoute(t *testing.T) {
	t.Parallel()
	r, problems, warnings := NewRouter([]Route{
		{Kind: "order.created", To: []string{"kafka:created"}},
		{Kind: "order.*", To: []string{"kafka:orders", "sqs:billing"}},
	}, anyAddress("kafka", "sqs"))
	if len(problems)+len(warnings) > 0 {
		t.Fatalf("problems %v, warnings %v", problems, warnings)
	}
	for kind, want := range map[string]string{"order.created": "order.created", "order.paid": "order.*"} {
		if got := r.find(kind); got == nil || got.text != want {
			t.Errorf("route of %s: got %+v, want %s", kind, got, want)
		}
	}
	if r.find("invoice") != nil {
		t.Error("a kind without a route was found")
	}
	if len(r.lanes) != 2 || r.lanes[0].name != "kafka" || r.lanes[1].name != "kafka+sqs" {
		t.Errorf("lanes: %+v", r.lanes)
	}
}

func TestRouterNamesProblems(t *testing.T) {
	t.Parallel()
	over := 101
	for _, c := range []struct {
		name  string
		route Route
		want  string
	}{
		{"no destination", Route{Kind: "a"}, "route 1 (a): to: at least one"},
		{"no sink", Route{Kind: "a", To: []string{"orders"}}, "sink:address"},
		{"unknown sink", Route{Kind: "a", To: []string{"nosink:x"}}, `there is no sink "nosink"`},
		{"twice", Route{Kind: "a", To: []string{"kafka:x", "kafka:x"}}, "named twice"},
		{"bad template", Route{Kind: "a", To: []string{"kafka:{name}"}}, "{name} is not a value of a job"},
		{"open template", Route{Kind: "a", To: []string{"kafka:{kind"}}, "closing brace"},
		{"empty header name", Route{Kind: "a", To: []string{"kafka:{header.}"}}, "{header.} is not"},
		{"share", Route{Kind: "a", To: []string{"kafka:x"}, Share: &over}, "101 is not between 0 and 100"},
		{"order", Route{Kind: "a", To: []string{"kafka:x"}, Order: "fifo"}, `"fifo"`},
		{"pattern", Route{Kind: `a\b`, To: []string{"kafka:x"}}, "backslash"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, problems, _ := NewRouter([]Route{c.route}, anyAddress("kafka"))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
				t.Errorf("problems: got %v, want one with %q", problems, c.want)
			}
		})
	}
}

func TestRouterWarnsOfHiddenRoutes(t *testing.T) {
	t.Parallel()
	_, problems, warnings := NewRouter([]Route{
		{Kind: "*", To: []string{"kafka:all"}},
		{Kind: "order.*", To: []string{"kafka:orders"}},
	}, anyAddress("kafka"))
	if len(problems) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "route 2 (order.*) is never used") {
		t.Errorf("problems %v, warnings %v", problems, warnings)
	}
}

// A sink's rules are asked about an address as a job may have it, and about each job's own.
func TestRulesSeeNoTemplates(t *testing.T) {
	t.Parallel()
	var asked []string
	rules := map[string]Addresses{"q": {Check: func(address string) error {
		asked = append(asked, address)
		if strings.ContainsAny(address, "{} ") {
			return errors.New("no braces, no spaces")
		}
		return nil
	}}}
	r, problems, _ := NewRouter([]Route{
		{Kind: "a", To: []string{"q:plain", "q:jobs-{kind}.{header.x y}", "q:{key}"}},
		{Kind: "b", To: []string{"q:{{a", "q:b {kind}"}},
	}, rules)
	if due := []string{"plain", "jobs-x.x", "x", "{a", "b x"}; !slices.Equal(asked, due) {
		t.Errorf("asked about %q, want %q", asked, due)
	}
	if len(problems) != 2 || !strings.HasSuffix(problems[0].Error(), `"q:{{a": no braces, no spaces`) ||
		!strings.HasSuffix(problems[1].Error(), `"q:b {kind}": with x for each value of the job: no braces, no spaces`) {
		t.Errorf("problems: %q", problems)
	}
	e := &Relay{router: r}
	e.Addresses = rules
	key := "{x y/ä}"
	d := e.address(&claim.Lease{Kind: "a", Key: &key, Headers: []byte(`{"x y": "1"}`), Payload: []byte(`1`)})
	for i, due := range []sinks.Outcome{sinks.Unavailable, sinks.Unavailable, sinks.Rejected} { // not sent yet, and never sent
		if got := d.attempts[i].result; got.Outcome != due {
			t.Errorf("%s: got %v (%v), want %v", d.attempts[i].to.text, got.Outcome, got.Err, due)
		}
	}
}

// The wider place of a destination is known before its jobs are, unless one of their values is in it.
func TestParentOfADestination(t *testing.T) {
	t.Parallel()
	r, problems, _ := NewRouter([]Route{{Kind: "a", To: []string{"s:x/y", "s:x/{key}", "s:x/{kind}/{key}", "s:{kind}/y", "s:x{key}/y", "s:alone", "other:x/y"}}},
		map[string]Addresses{"s": folders, "other": {}})
	var got []string
	for _, d := range r.Destinations() {
		got = append(got, d.Parent)
	}
	if want := []string{"x", "x", "x", "", "", "", ""}; len(problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, problems, want)
	}
}

// folders is a sink's rule by which what stands before a slash is a wider place.
var folders = Addresses{Parent: func(address string) string {
	parent, _, ok := strings.Cut(address, "/")
	if !ok {
		return ""
	}
	return parent
}}

// Which kinds are exact is the pattern's to say: a backslash takes the meaning from a star, and from a backslash.
func TestExactKinds(t *testing.T) {
	t.Parallel()
	var routes []Route
	for _, kind := range []string{`a`, `b.*`, `c\*`, `d\\*`, `e\\\*`, `f\\g`} {
		routes = append(routes, Route{Kind: kind, To: []string{"s:x"}})
	}
	r, problems, _ := NewRouter(routes, anyAddress("s"))
	if got, want := r.ExactKinds(), []string{`a`, `c*`, `e\*`, `f\g`}; len(problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, problems, want)
	}
}
