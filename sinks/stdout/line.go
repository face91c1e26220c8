package stdout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/jobrelay/relay/sinks"
)

// head is everything of a line but its last member.
type head struct {
	ID      string                     `json:"id"`
	Kind    string                     `json:"kind"`
	Key     *string                    `json:"key"`
	Attempt int                        `json:"attempt"`
	Time    string                     `json:"time"`
	Replay  int64                      `json:"replay,omitempty"`
	Headers map[string]json.RawMessage `json:"headers"`
}

// appendLine writes a message and its line break. The payload goes in as it is: an encoder would write it anew, and
// its bytes are a promise.
func appendLine(b *bytes.Buffer, m *sinks.Message) error {
	headers := make(map[string]json.RawMessage, len(m.Headers))
	for _, h := range m.Headers {
		headers[h.Name] = headerValue(h)
	}
	start := b.Len()
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(head{m.ID, m.Kind, m.Key, m.Attempt, m.Time.UTC().Format(sinks.TimeFormat), m.Replay, headers})
	if err != nil {
		b.Truncate(start)
		return err
	}
	b.Truncate(b.Len() - len("}\n"))
	if m.Opaque {
		b.WriteString(`,"body":"`)
		b.WriteString(base64.StdEncoding.EncodeToString(m.Payload))
		b.WriteString("\"}\n")
		return nil
	}
	b.WriteString(`,"payload":`)
	at := b.Len()
	b.Write(m.Payload)
	oneLine(b.Bytes()[at:])
	b.WriteString("}\n")
	return nil
}

// oneLine turns line breaks into spaces. In JSON text they are only ever white space, which jsonb doesn't write; a
// line break would make two broken lines of one message.
func oneLine(text []byte) {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
}

// headerValue is the JSON of a header: numbers and booleans with the digits that they had.
func headerValue(h sinks.Header) json.RawMessage {
	if _, isText := h.Value.(string); !isText && h.Value != nil {
		return json.RawMessage(h.Text)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(h.Text) // a string always has a JSON form
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
