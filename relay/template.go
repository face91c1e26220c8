package relay

import (
	"fmt"
	"strings"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// template is an address that may hold values of the job.
type template []templatePart

// templatePart is a literal, or a field of the job: kind, key, or header.NAME.
type templatePart struct {
	literal string
	field   string
}

// compileTemplate reads {kind}, {key} and {header.NAME}; {{ is a brace.
func compileTemplate(s string) (template, error) {
	var t template
	for s != "" {
		i := strings.IndexByte(s, '{')
		if i < 0 {
			return append(t, templatePart{literal: s}), nil
		}
		if i > 0 {
			t = append(t, templatePart{literal: s[:i]})
		}
		s = s[i+1:]
		if strings.HasPrefix(s, "{") {
			t, s = append(t, templatePart{literal: "{"}), s[1:]
			continue
		}
		field, rest, ok := strings.Cut(s, "}")
		if !ok {
			return nil, fmt.Errorf("{%s: the closing brace is missing ({{ is a brace)", field)
		}
		if header := strings.TrimPrefix(field, "header."); field != "kind" && field != "key" && (header == field || header == "") {
			return nil, fmt.Errorf("{%s} is not a value of a job; {kind}, {key} and {header.NAME} are", field)
		}
		t, s = append(t, templatePart{field: field}), rest
	}
	return t, nil
}

// fixed says whether every job has the same address.
func (t template) fixed() bool {
	for _, p := range t {
		if p.field != "" {
			return false
		}
	}
	return true
}

// Values that stand for those that come with the job: one letter, which is legal in any name.
const sampleValue, otherValue = "x", "y"

// sample is an address as a job may have it. A sink's rules are for addresses and know nothing of templates.
func (t template) sample(value string) string {
	var b strings.Builder
	for _, p := range t {
		if p.field != "" {
			b.WriteString(value)
		} else {
			b.WriteString(p.literal)
		}
	}
	return b.String()
}

// expand gives a job's address, or says which value the job lacks.
func (t template) expand(l *claim.Lease, headers []sinks.Header) (string, error) {
	if len(t) == 1 && t[0].field == "" {
		return t[0].literal, nil
	}
	var b strings.Builder
	for _, p := range t {
		v, ok := p.value(l, headers)
		if !ok {
			return "", fmt.Errorf("the address needs {%s}, which the job doesn't have", p.field)
		}
		b.WriteString(v)
	}
	return b.String(), nil
}

func (p templatePart) value(l *claim.Lease, headers []sinks.Header) (string, bool) {
	switch {
	case p.field == "":
		return p.literal, true
	case p.field == "kind":
		return l.Kind, true
	case p.field == "key":
		if l.Key == nil || *l.Key == "" {
			return "", false
		}
		return *l.Key, true
	}
	name := strings.TrimPrefix(p.field, "header.")
	for _, h := range headers {
		if h.Name == name {
			return h.Text, h.Text != ""
		}
	}
	return "", false
}
