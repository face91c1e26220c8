package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

func key(s string) *string { return &s }

func TestMessage(t *testing.T) {
	t.Parallel()
	created := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.FixedZone("", 3600))
	m, err := message("shop", &claim.Lease{ID: 7, Kind: "order", Key: key("k"), Payload: []byte(`{"a": 1}`), Attempt: 2, CreatedAt: created,
		Headers: []byte(`{"Content-Type": "text/x", "a": "b"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "shop/7" || m.Kind != "order" || *m.Key != "k" || m.Attempt != 2 || string(m.Payload) != `{"a": 1}` || m.Opaque || m.Replay != 0 {
		t.Errorf("message: %+v", m)
	}
	if m.ContentType != "text/x" {
		t.Errorf("content type: got %q, want text/x", m.ContentType)
	}
	if got := m.Time.Format(sinks.TimeFormat); got != "2031-02-03T03:05:06.000007Z" {
		t.Errorf("time: got %s", got)
	}
}

func TestMessageOfABody(t *testing.T) {
	t.Parallel()
	runAt := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	original := int64(3)
	m, err := message("shop", &claim.Lease{ID: 9, Body: []byte{}, RunAt: runAt, ReplayOf: &original})
	if err != nil {
		t.Fatal(err)
	}
	if !m.Opaque || m.Payload == nil || m.ContentType != "application/octet-stream" || m.ID != "shop/3" || m.Replay != 9 || !m.Time.Equal(runAt) || m.Key != nil {
		t.Errorf("message: %+v", m)
	}
}

// B18: one rule for each JSON type.
func TestB18HeaderValues(t *testing.T) {
	t.Parallel()
	hs, err := headers([]byte(`{"n": 1, "big": 5000000000, "f": 1.5, "tenth": 0.1, "t": true, "u": "é😀", "e": "", "huge": 123456789012345678901234567890, "z": 1.0, "neg": -7}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sinks.Header{
		"n": {Text: "1", Value: int64(1)}, "big": {Text: "5000000000", Value: int64(5000000000)}, "f": {Text: "1.5", Value: "1.5"},
		"tenth": {Text: "0.1", Value: "0.1"}, "t": {Text: "true", Value: true}, "u": {Text: "é😀", Value: "é😀"}, "e": {Text: "", Value: ""},
		"huge": {Text: "123456789012345678901234567890", Value: "123456789012345678901234567890"}, "z": {Text: "1.0", Value: "1.0"}, "neg": {Text: "-7", Value: int64(-7)},
	}
	if len(hs) != len(want) {
		t.Fatalf("got %d headers, want %d", len(hs), len(want))
	}
	for i, h := range hs {
		w := want[h.Name]
		if h.Text != w.Text || h.Value != w.Value {
			t.Errorf("header %s: got %q %T %v, want %q %T %v", h.Name, h.Text, h.Value, h.Value, w.Text, w.Value, w.Value)
		}
		if i > 0 && hs[i-1].Name >= h.Name {
			t.Errorf("not sorted: %s before %s", hs[i-1].Name, h.Name)
		}
	}
}

func TestB18HeadersThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"nul": null}`:       `header "nul": is null`,
		`{"arr": ["a"]}`:      `header "arr": is an array`,
		`{"obj": {"x": 1}}`:   `header "obj": is an object`,
		`{"Relay-Id": "x"}`:   `header "Relay-Id": names that begin with relay-`,
		`{"": "x"}`:           `header ""`,
		`["a"]`:               "headers: not a JSON object",
		`"text"`:              "headers: not a JSON object",
		`{"s": "secretvalue"`: "headers: not a JSON object",
	} {
		if _, err := headers([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("headers(%s): got %v, want %q", raw, err, want)
		}
	}
}

func TestTemplateExpand(t *testing.T) {
	t.Parallel()
	l := &claim.Lease{Kind: "order", Key: key("k1")}
	hs := []sinks.Header{{Name: "region", Text: "eu", Value: "eu"}, {Name: "empty"}}
	for _, c := range []struct{ address, want, err string }{
		{"orders", "orders", ""},
		{"orders.{header.region}.{kind}.{key}", "orders.eu.order.k1", ""},
		{"a{{b}", "a{b}", ""},
		{"{header.none}", "", "{header.none}"},
		{"{header.empty}", "", "{header.empty}"},
		{"", "", ""},
	} {
		tpl, err := compileTemplate(c.address)
		if err != nil {
			t.Fatalf("compileTemplate(%q): %v", c.address, err)
		}
		got, err := tpl.expand(l, hs)
		if got != c.want && c.err == "" || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got %q, %v, want %q, %q", c.address, got, err, c.want, c.err)
		}
	}
	tpl, _ := compileTemplate("{key}")
	if _, err := tpl.expand(&claim.Lease{Kind: "order"}, nil); err == nil {
		t.Error("a job without a key got an address that needs one")
	}
}
