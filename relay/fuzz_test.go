package relay

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// meaning is a kind pattern as a regular expression, read in another way.
func meaning(p string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '*':
			b.WriteString(`.*`)
			continue
		case p[i] == '\\':
			i++
		}
		b.WriteString(regexp.QuoteMeta(string(rune(p[i]))))
	}
	return regexp.MustCompile(b.String() + `\z`)
}

// latin makes each byte a character, for bytes are what patterns compare.
func latin(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// FuzzPattern compares patterns with regular expressions, and what one covers with what both match.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{"a", "*", "order.*", "*.created", "a*b*c", `\*`, `a\\*`, `*a*a*a*a*b`, "é*", `\`, ""} {
		f.Add(p, "order.*", "order.created")
		f.Add("*", p, "aaaaaaaaaaaaaaaaaaaaaa")
		f.Add(p, `a\*`, "a*")
		f.Add(p, "*", "b")
	}
	f.Fuzz(func(t *testing.T, one, other, kind string) {
		p, err := compilePattern(one)
		if err != nil || max(len(one), len(other), len(kind)) > 300 { // a kind has at most 255 bytes
			return
		}
		if got, want := p.matches(kind), meaning(one).MatchString(latin(kind)); got != want {
			t.Errorf("%q matches %q: got %v, want %v", one, kind, got, want)
		}
		if exact, ok := p.exact(); ok != !slices.ContainsFunc(p, func(t patternToken) bool { return t.star }) || ok && !p.matches(exact) {
			t.Errorf("%q is exactly %q: %v", one, exact, ok)
		}
		q, err := compilePattern(other)
		if err == nil && p.covers(q) && q.matches(kind) && !p.matches(kind) {
			t.Errorf("%q covers %q, and only the latter matches %q", one, other, kind)
		}
		if !p.covers(p) {
			t.Errorf("%q doesn't cover itself", one)
		}
	})
}

// FuzzDestination compiles any destination. What compiles, and is written out again, means the same.
func FuzzDestination(f *testing.F) {
	for _, to := range []string{"kafka:orders", "kafka:{kind}", "kafka:a{{b}}{key}", "kafka:{header.region}-{header.a.b}", "kafka:{", "kafka:{}", "kafka:{{{kind}", ":x", "kafka", "kafka:", "nosink:x"} {
		f.Add(to, "order", "k", true, `{"region": "eu", "a.b": 1}`)
	}
	f.Fuzz(func(t *testing.T, to, kind, key string, hasKey bool, raw string) {
		d, err := compileDestination(to, anyAddress("kafka"))
		if err != nil {
			return
		}
		l := &claim.Lease{Kind: kind}
		if hasKey {
			l.Key = &key
		}
		hs, err := headers([]byte(raw))
		if err != nil {
			hs = nil
		}
		got, err := d.address.expand(l, hs)
		again, bad := compileTemplate(write(d.address))
		if bad != nil {
			t.Fatalf("%q written out as %q: %v", to, write(d.address), bad)
		}
		same, errAgain := again.expand(l, hs)
		if got != same || (err == nil) != (errAgain == nil) {
			t.Errorf("%q: got %q (%v), written out as %q %q (%v)", to, got, err, write(d.address), same, errAgain)
		}
		if address, ok := d.fixed(); ok && (err != nil || got != address) {
			t.Errorf("%q is fixed as %q and expands to %q (%v)", to, address, got, err)
		}
		if want, ok := substitute(strings.TrimPrefix(to, "kafka:"), l, hs); ok != (err == nil) || ok && got != want {
			t.Errorf("%q: got %q (%v), want %q", to, got, err, want)
		}
	})
}

func write(t template) string {
	var b strings.Builder
	for _, p := range t {
		if p.field != "" {
			b.WriteString("{" + p.field + "}")
		} else {
			b.WriteString(strings.ReplaceAll(p.literal, "{", "{{"))
		}
	}
	return b.String()
}

var placeholder = regexp.MustCompile(`(?s)\{\{|\{[^}]*\}`)

// substitute expands a template in another way. It is false when the job lacks a value.
func substitute(text string, l *claim.Lease, hs []sinks.Header) (string, bool) {
	values := map[string]string{"{{": "{", "{kind}": l.Kind}
	if l.Key != nil {
		values["{key}"] = *l.Key
	}
	for _, h := range hs {
		values["{header."+h.Name+"}"] = h.Text
	}
	ok := true
	out := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		v := values[p]
		ok = ok && (v != "" || p == "{kind}")
		return v
	})
	return out, ok
}

// FuzzHeaders reads any text as a job's headers column, and compares with how another decoder reads it.
func FuzzHeaders(f *testing.F) {
	for _, raw := range []string{
		`{"n":1,"big":5000000000,"f":1.5,"t":true,"u":"é😀","e":""}`, `{"z":null}`, `{"l":["a"]}`, `{"o":{"x":1}}`, `{"": 1}`, `{"Relay-Id": "x"}`, `{"a": -0, "b": 1e2, "c": 9223372036854775808}`,
		`{"a": "\ud800", "b": "\u0000"}`, `[]`, `null`, `"x"`, ``, `{"a": 1}x`, `{"Content-Type": 5}`, ` { "a" : false } `,
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		m, err := message("shop", &claim.Lease{ID: 7, Kind: "k", Attempt: 1, Headers: []byte(raw), Payload: []byte(`1`)})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if raw == "" {
			return
		}
		var want map[string]any
		d := json.NewDecoder(bytes.NewBufferString(raw))
		d.UseNumber()
		if err := d.Decode(&want); err != nil || len(want) != len(m.Headers) {
			t.Fatalf("%q: %d headers, want %v (%v)", raw, len(m.Headers), want, err)
		}
		if !slices.IsSortedFunc(m.Headers, func(a, b sinks.Header) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("not sorted: %v", m.Headers)
		}
		for _, h := range m.Headers {
			if h.Name == "" || strings.HasPrefix(strings.ToLower(h.Name), "relay-") {
				t.Errorf("header %q", h.Name)
			}
			if text, value := plainly(want[h.Name]); h.Text != text || h.Value != value {
				t.Errorf("header %q: got %q, %#v, want %q, %#v", h.Name, h.Text, h.Value, text, value)
			}
		}
	})
}

// plainly gives a decoded value's text and what it is on a broker with types.
func plainly(v any) (string, any) {
	switch v := v.(type) {
	case string:
		return v, v
	case bool:
		return strconv.FormatBool(v), v
	case json.Number:
		if i, err := v.Int64(); err == nil && strconv.FormatInt(i, 10) == v.String() {
			return v.String(), i
		}
		return v.String(), v.String()
	}
	return "not a header", nil
}
