package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
)

// message builds what every destination of a job gets; only the address is still missing. An error means that the
// job can never be sent: it names the header and the rule.
func message(source string, l *claim.Lease) (sinks.Message, error) {
	id := l.ID
	m := sinks.Message{Kind: l.Kind, Key: l.Key, Attempt: l.Attempt, Payload: l.Payload, Time: l.CreatedAt.UTC()}
	if l.ReplayOf != nil {
		id, m.Replay = *l.ReplayOf, l.ID
	}
	m.ID = source + "/" + strconv.FormatInt(id, 10)
	if l.CreatedAt.IsZero() {
		m.Time = l.RunAt.UTC()
	}
	if l.Payload == nil {
		m.Payload, m.Opaque = l.Body, true
	}
	var err error
	if m.Headers, err = headers(l.Headers); err != nil {
		return m, err
	}
	m.ContentType = contentType(m.Headers, m.Opaque)
	return m, nil
}

func contentType(hs []sinks.Header, opaque bool) string {
	for _, h := range hs {
		if strings.EqualFold(h.Name, "content-type") {
			return h.Text
		}
	}
	if opaque {
		return "application/octet-stream"
	}
	return "application/json"
}

// headers reads a job's headers column. Strings, numbers and booleans can be sent; the names that begin with relay-
// belong to the relay.
func headers(raw []byte) ([]sinks.Header, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("headers: not a JSON object")
	}
	out := make([]sinks.Header, 0, len(all))
	for name, v := range all {
		h, err := header(name, v)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b sinks.Header) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func header(name string, raw json.RawMessage) (sinks.Header, error) {
	if strings.HasPrefix(strings.ToLower(name), "relay-") {
		return sinks.Header{}, fmt.Errorf("header %q: names that begin with relay- belong to the relay", name)
	}
	if name == "" {
		return sinks.Header{}, fmt.Errorf("header %q: the name must not be empty", name)
	}
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return sinks.Header{}, fmt.Errorf("header %q: %w", name, err)
		}
		return sinks.Header{Name: name, Text: s, Value: s}, nil
	case 't', 'f':
		return sinks.Header{Name: name, Text: string(raw), Value: raw[0] == 't'}, nil
	case 'n', '[', '{':
		what := map[byte]string{'n': "null", '[': "an array", '{': "an object"}[raw[0]]
		return sinks.Header{}, fmt.Errorf("header %q: is %s; a header is a string, a number or a boolean", name, what)
	default:
		return sinks.Header{Name: name, Text: string(raw), Value: number(string(raw))}, nil
	}
}

// number gives a JSON number as int64 where it is one, else as text: digits never change, for no consumer.
func number(text string) any {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && text != "-0" {
		return i
	}
	return text
}
