package sinktest

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/jobrelay/relay/sinks"
)

// messageForm sends one message that uses everything a message has, and compares what a consumer sees.
func messageForm(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	key := "order-17"
	full := message(address)
	full.Kind, full.Key, full.Attempt, full.Replay = "order.plâced", &key, 7, 4711
	full.Headers = sorted(text("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), text("Content-Type", "application/cloudevents+json"))
	full.ContentType = "application/cloudevents+json"
	plain := message(address)
	plain.Headers = nil
	raw := opaque(address, []byte("plain text"))
	batch := []sinks.Message{full, plain, raw}
	s.wantAccepted(s.publish(sink, batch))
	s.compare(address, batch)
}

// nullAndEmptyKey: no key and an empty key are two things.
func nullAndEmptyKey(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	batch := messages(address, 5)
	for i, key := range []string{"", "k", "ключ/é 😀", strings.Repeat("k", 1024)} {
		batch[i].Key = &key
	}
	batch[4].Key = nil
	s.wantAccepted(s.publish(sink, batch))
	s.compare(address, batch)
}

// headerTypes: every type that a header can have, at its edges.
func headerTypes(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	numbers, texts := message(address), message(address)
	numbers.Headers = sorted(
		typed("n", "1", int64(1)), typed("negative", "-5", int64(-5)), typed("big", "5000000000", int64(5_000_000_000)),
		typed("largest", "9223372036854775807", int64(math.MaxInt64)), typed("f", "1.5", "1.5"),
		typed("t", "true", true), typed("f2", "false", false),
		text("huge", "123456789012345678901234567890"), // no number type holds it: its text
	)
	texts.Headers = sorted(text("u", "é😀\u2028"), text("e", ""), text("true", "true"), text("spaces", "  a\tb  "),
		text("quotes", `"<&>'\`), text("long", strings.Repeat("x", 2000)))
	batch := []sinks.Message{numbers, texts}
	s.wantAccepted(s.publish(sink, batch))
	s.compare(address, batch)
}

// oddHeaders: names and values at which brokers balk, one message each among good neighbours. A sink sends such a
// message as it is or rejects it by name; the neighbours notice nothing.
func oddHeaders(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	odd := [][]sinks.Header{
		{text("a b", "space in the name")}, {text(".x", "1")}, {text("x..y", "1")}, {text("AWS.x", "1")},
		{text(strings.Repeat("n", 255), "1")}, {text(strings.Repeat("n", 257), "1")}, {text("ключ", "значение")},
		{text("bell", "\a")}, {text("nonchar", "\ufffe\uffff")}, {text("newline", "a\r\nb")}, {text("Same", "1"), text("same", "2")},
		{text("large", strings.Repeat("v", 20_000))},
	}
	many := make([]sinks.Header, 30)
	for i := range many {
		many[i] = text(fmt.Sprintf("h%02d", i), "v")
	}
	var batch []sinks.Message
	for _, headers := range append(odd, many) {
		m := message(address)
		m.Headers = headers
		batch = append(batch, m, message(address))
	}
	results := s.publish(sink, batch)
	var sent []sinks.Message
	for i, m := range batch {
		if i%2 == 1 || results[i].Outcome == sinks.Accepted {
			s.want(results, i, sinks.Accepted, 0)
			sent = append(sent, m)
			continue
		}
		s.want(results, i, sinks.Rejected, sinks.ScopeMessage)
	}
	s.compare(address, sent)
}

// jsonText: a payload arrives as the bytes that jsonb gave, not decoded and written again. A broker that refuses a
// character gets it as a JSON escape, which is the same value.
func jsonText(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	payloads := []string{
		`{"id": 1546130668394913822}`, `{"n": 123456789012345678901234567890}`, `{"a": 2.50, "b": 1, "e": 100, "z": -0}`,
		"{\"s\": \"<&>\u2028\u2029é😀\"}", `[1, 2, {"x": []}]`, `"a string"`, `17`, `null`, `true`, `{}`,
		"{\"nonchar\": \"\ufffe\uffff\"}", `{"escaped": "\u0007\\\"\n"}`, "\"\u007f\u0080\ufeff\"",
	}
	batch := messages(address, len(payloads))
	for i, p := range payloads {
		batch[i].Payload = []byte(p)
	}
	s.wantAccepted(s.publish(sink, batch))
	s.compare(address, batch)
}

// opaqueBytes: a body arrives byte for byte, whatever bytes it has.
func opaqueBytes(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bodies := [][]byte{all, {0}, {0xff, 0xfe}, []byte("héllo\r\n\t"), []byte("bell \a"), []byte("\ufffe"), []byte(" "), bytes.Repeat(all, 100)}
	batch := make([]sinks.Message, len(bodies))
	for i, b := range bodies {
		batch[i] = opaque(address, b)
	}
	s.wantAccepted(s.publish(sink, batch))
	s.compare(address, batch)
}

// emptyBody: sent as it is, or rejected with a reason where the broker has no such message.
func emptyBody(s *suite) {
	sink, address := s.open(), s.h.Address(s.T)
	batch := []sinks.Message{message(address), opaque(address, []byte{}), message(address)}
	results := s.publish(sink, batch)
	s.want(results, 0, sinks.Accepted, 0)
	s.want(results, 2, sinks.Accepted, 0)
	if s.h.RefusesEmpty {
		s.want(results, 1, sinks.Rejected, sinks.ScopeMessage)
		batch = append(batch[:1:1], batch[2])
	} else {
		s.want(results, 1, sinks.Accepted, 0)
	}
	s.compare(address, batch)
}

// compare reads a place and fails unless it has these messages, each once and in the right form.
func (s *suite) compare(address string, batch []sinks.Message) {
	s.Helper()
	got := s.wantExactly(address, batch)
	for _, m := range batch {
		if r, ok := got[m.ID]; ok {
			s.compareOne(m, r)
		}
	}
}

func (s *suite) compareOne(m sinks.Message, r Received) {
	s.Helper()
	replay := ""
	if m.Replay != 0 {
		replay = fmt.Sprint(m.Replay)
	}
	for _, f := range []struct{ field, got, want string }{
		{"kind", r.Kind, m.Kind},
		{"attempt", r.Attempt, fmt.Sprint(m.Attempt)},
		{"time", r.Time, m.Time.UTC().Format(sinks.TimeFormat)},
		{"replay", r.Replay, replay},
		{"key", show(r.Key), show(m.Key)},
		{"payload", string(r.Payload), string(m.Payload)},
	} {
		if f.got != f.want && (f.field != "payload" || m.Opaque || !sameJSON(f.got, f.want)) {
			s.Errorf("%s of %s: got %.200q, want %.200q", f.field, m.ID, f.got, f.want)
		}
	}
	if own := ownContentType(m); r.ContentType != own && (own != "" || r.ContentType != m.ContentType) {
		s.Errorf("content type of %s: got %q, want %q", m.ID, r.ContentType, m.ContentType)
	}
	if got, want := plainHeaders(r.Headers), s.wantHeaders(m); !reflect.DeepEqual(got, want) {
		s.Errorf("headers of %s: got %.500q, want %.500q", m.ID, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
	}
}

// sameJSON says whether two texts differ only in how the characters that a broker may refuse are written.
func sameJSON(got, want string) bool { return got == refusable.Replace(want) }

var refusable = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

func show(key *string) string {
	if key == nil {
		return "no key"
	}
	return fmt.Sprintf("key %q", *key)
}

// ownContentType is the value of the job's own header of that name.
func ownContentType(m sinks.Message) string {
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name, "content-type") {
			return h.Text
		}
	}
	return ""
}

func (s *suite) wantHeaders(m sinks.Message) map[string]any {
	want := map[string]any{}
	for _, h := range m.Headers {
		switch {
		case strings.EqualFold(h.Name, "content-type"):
		case s.h.TextHeaders:
			want[h.Name] = h.Text
		default:
			want[h.Name] = h.Value
		}
	}
	return want
}

// plainHeaders makes one integer type of all that clients decode into.
func plainHeaders(headers map[string]any) map[string]any {
	plain := map[string]any{}
	for name, value := range headers {
		v := reflect.ValueOf(value)
		switch {
		case strings.EqualFold(name, "content-type"):
		case v.CanInt():
			plain[name] = v.Int()
		default:
			plain[name] = value
		}
	}
	return plain
}
