package sqs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jobrelay/relay/sinks"
)

// B18: header values of every type, as text; names of the relay's own can't be taken by a job's header.
func TestB18HeaderTypes(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	batch := messages(f.create("q"), 1)
	batch[0].Headers = []sinks.Header{
		{Name: "big", Text: "5000000000", Value: int64(5_000_000_000)}, {Name: "f", Text: "1.5", Value: 1.5},
		{Name: "n", Text: "1", Value: int64(1)}, {Name: "t", Text: "true", Value: true}, {Name: "u", Text: "é😀", Value: "é😀"},
	}
	want(t, publish(t, start(t, f, func(*Settings) {}), batch), 0, sinks.Accepted, 0, "")
	got := f.received("q")[0].attributes()
	due := map[string]string{"big": "5000000000", "f": "1.5", "n": "1", "t": "true", "u": "é😀", "relay-id": "shop/0", "relay-kind": "k",
		"relay-attempt": "1", "relay-time": "1970-01-01T00:00:00.000000Z", "relay-key": "key-0"}
	if !maps.Equal(got, due) {
		t.Errorf("got %v\nwant %v", got, due)
	}
}

// B20: ten messages that fit one by one, and not together.
func TestB20TooLargeTogether(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{262_144, 1_048_576} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fake) { f.limit = limit })
			batch := messages(f.create("q"), 20)
			for i := range batch {
				if i%2 == 0 {
					batch[i].Payload = body(limit/5 - 5_000)
				} else {
					batch[i].Payload = body(1_000)
				}
			}
			results := publish(t, start(t, f, func(*Settings) {}), batch)
			for i := range results {
				want(t, results, i, sinks.Accepted, 0, "")
			}
			if calls := f.sizes(); len(calls) > 4 {
				t.Errorf("%v entries a call, want full calls", calls)
			}
			if got := len(f.ids("q")); got != len(batch) {
				t.Errorf("%d messages in the queue, want %d", got, len(batch))
			}
		})
	}
}

// body is JSON of exactly that many bytes, of characters that have two.
func body(size int) []byte {
	text := `"` + strings.Repeat("é", (size-2)/2) + strings.Repeat("x", size%2) + `"`
	return []byte(text)
}

// B20: just under, at and over the limit, in bytes and attributes included; the limit may be the setting's or the queue's.
func TestB20Limit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ queue, setting int }{
		"262144 by the queue":    {262_144, 1 << 20},
		"262144 by the setting":  {1 << 20, 262_144},
		"1048576":                {1 << 20, 1 << 20},
		"the queue doesn't tell": {0, 262_144},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fake) {
				f.limit = c.queue
				if c.queue == 0 {
					f.limit = c.setting
					f.call = func(action string, _ *fakeRequest) *fakeReply {
						if action == "GetQueueAttributes" {
							return refuse(403, "AccessDenied", "not for you")
						}
						return nil
					}
				}
			})
			limit := min(f.limit, c.setting)
			batch := messages(f.create("q"), 6)
			batch[1].Headers = []sinks.Header{{Name: "large", Text: strings.Repeat("h", 10_000)}}
			for i, over := range map[int]int{0: -1, 1: 0, 2: 1, 3: 0, 4: limit} {
				e, err := newEntry(i, &batch[i], false)
				if err != nil {
					t.Fatal(err)
				}
				batch[i].Payload = body(limit + over - e.size + len(batch[i].Payload))
			}
			results := publish(t, start(t, f, func(s *Settings) { s.MaxBytes = c.setting }), batch)
			for i := range results {
				switch i {
				case 2:
					want(t, results, i, sinks.Rejected, sinks.ScopeMessage, fmt.Sprintf("too large: %d bytes with its attributes, the limit of q is %d", limit+1, limit))
				case 4:
					want(t, results, i, sinks.Rejected, sinks.ScopeMessage, fmt.Sprintf("%d bytes with its attributes, the limit of q is %d", 2*limit, limit))
				default:
					want(t, results, i, sinks.Accepted, 0, "")
				}
			}
		})
	}
}

// B20: a server whose limit is lower than it or the setting says refuses the call; the small ones get through.
func TestB20LimitUnknown(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(f *fake) {
		f.limit = 262_144
		f.call = func(action string, _ *fakeRequest) *fakeReply {
			if action == "GetQueueAttributes" {
				return reply(map[string]any{"Attributes": map[string]string{}})
			}
			return nil
		}
	})
	batch := messages(f.create("q"), 10)
	batch[3].Payload, batch[4].Payload, batch[8].Payload = body(200_000), body(200_000), body(300_000)
	results := publish(t, start(t, f, func(*Settings) {}), batch)
	for i := range results {
		if i == 8 {
			want(t, results, i, sinks.Rejected, sinks.ScopeMessage, "BatchRequestTooLong")
		} else {
			want(t, results, i, sinks.Accepted, 0, "")
		}
	}
}

// B21: what JSON and bytes allow and SQS refuses, one each among good ones, on a server with the real rules.
func TestB21Characters(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	f.create("q")
	for name, c := range map[string]struct {
		payload  string
		opaque   bool
		sent     string // body as SQS gets it
		encoding string
	}{
		"JSON":                   {`{"a": "é😀<&>"}`, false, `{"a": "é😀<&>"}`, ""},
		"U+FFFE and U+FFFF":      {"\"\ufffe x \uffff\"", false, `"\ufffe x \uffff"`, ""},
		"U+FFFD":                 {"\"\ufffd\"", false, "\"\ufffd\"", ""},
		"U+2028, DEL, C1":        {"\"\u2028\u007f\u0085\"", false, "\"\u2028\u007f\u0085\"", ""},
		"text":                   {"héllo\tthere\r\n", true, "héllo\tthere\r\n", ""},
		"bell":                   {"\a", true, base64.StdEncoding.EncodeToString([]byte("\a")), "base64"},
		"NUL":                    {"a\x00b", true, "YQBi", "base64"},
		"U+FFFE in a body":       {"\ufffe", true, "77++", "base64"},
		"no UTF-8":               {"\xff\xfe", true, "//4=", "base64"},
		"a surrogate":            {"\xed\xa0\x80", true, "7aCA", "base64"},
		"half a character":       {"\xc3", true, "ww==", "base64"},
		"what looks like base64": {"YQ==", true, "YQ==", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := f.create("q-" + strings.Map(letters, name))
			batch := messages(queue, 3)
			batch[1].Payload, batch[1].Opaque = []byte(c.payload), c.opaque
			results := publish(t, start(t, f, func(*Settings) {}), batch)
			for i := range results {
				want(t, results, i, sinks.Accepted, 0, "")
			}
			e := f.received(queue)[1]
			if e.MessageBody != c.sent || e.attributes()["relay-encoding"] != c.encoding {
				t.Errorf("sent %q in %q, want %q in %q", e.MessageBody, e.attributes()["relay-encoding"], c.sent, c.encoding)
			}
		})
	}
}

func letters(r rune) rune {
	if r < 128 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
		return r
	}
	return '-'
}

// B21: headers that don't fit as attributes go together into one, and only then.
func TestB21Headers(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	five, six := headers("a", "b", "c", "d", "e"), headers("a", "b", "c", "d", "e", "f")
	empty := ""
	for name, c := range map[string]struct {
		headers []sinks.Header
		change  func(*sinks.Message)
		folded  map[string]string // nil: each header is an attribute
	}{
		"ten in all":         {headers: five},
		"eleven":             {six, nil, map[string]string{"a": "v", "b": "v", "c": "v", "d": "v", "e": "v", "f": "v"}},
		"six without a key":  {headers: six, change: func(m *sinks.Message) { m.Key = nil }},
		"replayed":           {five, func(m *sinks.Message) { m.Replay = 7 }, map[string]string{"a": "v", "b": "v", "c": "v", "d": "v", "e": "v"}},
		"encoded":            {five, func(m *sinks.Message) { m.Payload = []byte{0} }, map[string]string{"a": "v", "b": "v", "c": "v", "d": "v", "e": "v"}},
		"longest name":       {headers: headers(strings.Repeat("n", 256))},
		"longer name":        {headers(strings.Repeat("n", 257)), nil, map[string]string{strings.Repeat("n", 257): "v"}},
		"dots":               {headers: headers("a.b.c")},
		"dot at the front":   {headers(".x", "y"), nil, map[string]string{".x": "v", "y": "v"}},
		"dot at the end":     {headers("x."), nil, map[string]string{"x.": "v"}},
		"two dots":           {headers("x..y"), nil, map[string]string{"x..y": "v"}},
		"space":              {headers("a b"), nil, map[string]string{"a b": "v"}},
		"AWS's own":          {headers("AWS.x"), nil, map[string]string{"AWS.x": "v"}},
		"Amazon's own":       {headers("amazon.x"), nil, map[string]string{"amazon.x": "v"}},
		"like AWS's":         {headers: headers("awsome")},
		"empty value":        {[]sinks.Header{{Name: "e", Value: ""}, {Name: "x", Text: "1", Value: int64(1)}}, nil, map[string]string{"e": "", "x": "1"}},
		"bell in a value":    {[]sinks.Header{{Name: "e", Text: "\a", Value: "\a"}}, nil, map[string]string{"e": "\a"}},
		"U+FFFE in a value":  {[]sinks.Header{{Name: "e", Text: "\ufffe", Value: "\ufffe"}}, nil, map[string]string{"e": "\ufffe"}},
		"empty key":          {headers("a"), func(m *sinks.Message) { m.Key = &empty }, map[string]string{"a": "v", "relay-key": ""}},
		"bell in the kind":   {headers("a"), func(m *sinks.Message) { m.Kind = "\a" }, map[string]string{"a": "v", "relay-kind": "\a"}},
		"no headers, folded": {nil, func(m *sinks.Message) { m.Key = &empty }, map[string]string{"relay-key": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := f.create("h-" + strings.Map(letters, name))
			batch := messages(queue, 3)
			batch[1].Headers = c.headers
			if c.change != nil {
				c.change(&batch[1])
			}
			results := publish(t, start(t, f, func(*Settings) {}), batch)
			for i := range results {
				want(t, results, i, sinks.Accepted, 0, "")
			}
			got := f.received(queue)[1].attributes()
			var folded map[string]string
			if text, ok := got["relay-headers"]; ok {
				if err := json.Unmarshal([]byte(text), &folded); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(folded, c.folded) {
				t.Errorf("folded %q, want %q", folded, c.folded)
			}
			for _, h := range c.headers {
				if _, ok := got[h.Name]; ok != (c.folded == nil) {
					t.Errorf("%.20q is an attribute: %v", h.Name, ok)
				}
			}
		})
	}
}

func headers(names ...string) (all []sinks.Header) {
	for _, n := range names {
		all = append(all, sinks.Header{Name: n, Text: "v", Value: "v"})
	}
	return all
}

// B21: ids with characters that SQS refuses; entry ids are ours.
func TestB21Ids(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	batch := messages(f.create("q.fifo"), 6)
	for i, id := range []string{"a/b:c/1", strings.Repeat("s", 100) + "/1", strings.Repeat("s", 200) + "/1", "a shop/1", "ключ/1", "\a"} {
		batch[i].ID, batch[i].Key = id, &id
	}
	results := publish(t, start(t, f, func(*Settings) {}), batch)
	for i := range results {
		want(t, results, i, sinks.Accepted, 0, "")
	}
	for i, e := range f.received("q.fifo") {
		due := batch[i].ID
		if i > 1 {
			if len(e.MessageGroupId) != 64 || e.MessageGroupId != plain(due) {
				t.Errorf("group %q, want a SHA-256", e.MessageGroupId)
			}
			due = plain(due)
		}
		if e.MessageDeduplicationId != due || e.MessageGroupId != due {
			t.Errorf("deduplication id %q, group %q, want %q", e.MessageDeduplicationId, e.MessageGroupId, due)
		}
	}
}

// An empty body is rejected by name before anything is sent, a white one isn't.
func TestB03EmptyBody(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	batch := messages(f.create("q"), 2)
	batch[0].Payload, batch[0].Opaque = nil, true
	batch[1].Payload, batch[1].Opaque = []byte(" "), true
	results := publish(t, start(t, f, func(*Settings) {}), batch)
	want(t, results, 0, sinks.Rejected, sinks.ScopeMessage, "an empty body")
	want(t, results, 1, sinks.Accepted, 0, "")
}
