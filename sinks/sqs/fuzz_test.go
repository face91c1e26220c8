package sqs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/jobrelay/relay/sinks"
)

// asRequest is an entry as the fake reads it off the wire.
func asRequest(t *testing.T, e *entry) *fakeEntry {
	t.Helper()
	r := e.request(0)
	text, err := json.Marshal(map[string]any{
		"Id": r.Id, "MessageBody": r.MessageBody, "MessageAttributes": r.MessageAttributes,
		"MessageGroupId": aws.ToString(r.MessageGroupId), "MessageDeduplicationId": aws.ToString(r.MessageDeduplicationId),
	})
	if err != nil {
		t.Fatal(err)
	}
	in := &fakeEntry{}
	if err := json.Unmarshal(text, in); err != nil {
		t.Fatal(err)
	}
	return in
}

// FuzzEntry makes an entry of any message. It keeps the rules of SQS, its size is what SQS counts, and everything that the
// job has can be read from it again.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"a": "é😀<&>"}`), false, "order", "k", true, "region", "eu", uint8(1), int64(0), false)
	f.Add([]byte("\"\ufffe x \uffff\""), false, "order", "", true, "a b", "\a", uint8(3), int64(7), true)
	f.Add([]byte("\"\u2028\u0085\""), false, strings.Repeat("k", 255), strings.Repeat("é", 200), true, "AWS.x", "", uint8(12), int64(0), true)
	f.Add([]byte("\x00\xff"), true, "\a", "a/b c", false, ".x", "\ufffe", uint8(5), int64(-1), true)
	f.Add([]byte("\xed\xa0\x80"), true, "k", "k", false, strings.Repeat("n", 257), "v", uint8(6), int64(0), false)
	f.Add([]byte("\"\uffff\""), false, "k", "k", true, "n", "\uffff", uint8(1), int64(0), false)
	f.Add([]byte("1"), false, "k", "k", true, "n", "v", uint8(5), int64(0), false)
	f.Add([]byte("1"), false, "k", "k", true, "n", "v", uint8(6), int64(0), false)
	f.Add([]byte{}, true, "k", "k", true, "n", "v", uint8(0), int64(0), false)
	f.Fuzz(func(t *testing.T, payload []byte, opaque bool, kind, key string, hasKey bool, name, value string, count uint8, replay int64, fifo bool) {
		if !opaque && !json.Valid(payload) || valid(kind) == "" || valid(name) == "" || strings.HasPrefix(strings.ToLower(name), "relay-") {
			return // none of these comes to a sink
		}
		m := sinks.Message{ID: "shop/1", Kind: valid(kind), Attempt: 1, Time: time.Unix(0, 0), Payload: payload, Opaque: opaque, Replay: replay}
		if key = valid(key); hasKey {
			m.Key = &key
		}
		for i := range int(count % 16) {
			m.Headers = append(m.Headers, sinks.Header{Name: valid(name) + strings.Repeat("x", i), Text: valid(value)})
		}
		e, err := newEntry(0, &m, fifo)
		if err != nil {
			if len(payload) > 0 {
				t.Errorf("refused: %v", err)
			}
			return
		}
		in, queue := asRequest(t, e), map[bool]string{true: "q.fifo", false: "q"}[fifo]
		if bad := (&fake{}).rules(queue, in); bad != nil {
			t.Errorf("SQS refuses it: %+v", bad)
		}
		if e.size != in.size() {
			t.Errorf("size %d, SQS counts %d", e.size, in.size())
		}
		sameBody(t, in, payload, opaque)
		sameHeaders(t, in.attributes(), &m)
	})
}

// valid is what Postgres would have let pass: UTF-8 without NUL.
func valid(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "") }

func sameBody(t *testing.T, in *fakeEntry, payload []byte, opaque bool) {
	t.Helper()
	body := []byte(in.MessageBody)
	if in.attributes()[attributeEncoding] == "base64" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(in.MessageBody); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(body, payload) {
		return
	}
	if opaque || !reflect.DeepEqual(decoded(t, body), decoded(t, payload)) {
		t.Errorf("body %q, want %q", body, payload)
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// sameHeaders puts together what a consumer reads, whichever way it came.
func sameHeaders(t *testing.T, got map[string]string, m *sinks.Message) {
	t.Helper()
	if text, ok := got[attributeHeaders]; ok {
		folded := map[string]string{}
		if err := json.Unmarshal([]byte(text), &folded); err != nil {
			t.Fatal(err)
		}
		for name, v := range folded {
			got[name] = v
		}
	}
	want := map[string]string{sinks.HeaderID: m.ID, sinks.HeaderKind: m.Kind, sinks.HeaderAttempt: "1"}
	if m.Key != nil {
		want[sinks.HeaderKey] = *m.Key
	}
	for _, h := range m.Headers {
		want[h.Name] = h.Text
	}
	for name, v := range want {
		if have, ok := got[name]; !ok || have != v {
			t.Errorf("header %q: got %q, want %q", name, have, v)
		}
	}
}

// FuzzPlan puts entries of any sizes and groups into calls: each entry once, no call over the limits, groups in order.
func FuzzPlan(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint16(1000), true)
	f.Add([]byte{0, 255, 1, 254, 2, 253, 3, 252, 128, 127}, uint16(100), false)
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 20), uint16(20), true)
	f.Add([]byte{}, uint16(0), true)
	f.Fuzz(func(t *testing.T, shape []byte, limit uint16, fifo bool) {
		entries := make([]*entry, len(shape))
		for i, c := range shape {
			entries[i] = &entry{index: i, size: 1 + int(c), group: fmt.Sprint(c % 13)}
		}
		seen, home, last := map[int]bool{}, map[string]int{}, map[string]int{}
		for n, st := range plan(entries, fifo, int(limit)) {
			for _, c := range st {
				size, groups := 0, map[string]bool{}
				for _, e := range c {
					size += e.size
					if seen[e.index] {
						t.Errorf("entry %d comes twice", e.index)
					}
					seen[e.index] = true
					if !fifo {
						continue
					}
					if at, ok := home[e.group]; ok && (at != n || last[e.group] > e.index || groups[e.group]) {
						t.Errorf("entry %d of group %s: strand %d after %d, entry after %d", e.index, e.group, n, at, last[e.group])
					}
					home[e.group], last[e.group], groups[e.group] = n, e.index, true
				}
				if len(c) == 0 || len(c) > mostEntries || size > int(limit) && len(c) > 1 {
					t.Errorf("a call of %d entries and %d bytes, the limit is %d", len(c), size, limit)
				}
			}
		}
		if len(seen) != len(entries) {
			t.Errorf("%d of %d entries are planned", len(seen), len(entries))
		}
	})
}

// FuzzReply reads any reply about a call: a message is accepted only if the reply says so of it, once, and with its MD5.
func FuzzReply(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, uint8(10), "InternalError", "-1")
	f.Add([]byte{0, 0, 65, 130, 195, 255}, uint8(4), "InvalidMessageContents", "0x1")
	f.Add([]byte{}, uint8(3), "", "")
	f.Fuzz(func(t *testing.T, say []byte, entries uint8, code, id string) {
		c := make(call, 1+entries%mostEntries)
		for i := range c {
			c[i] = &entry{index: i, body: fmt.Sprint("body ", i)}
		}
		out := &awssqs.SendMessageBatchOutput{}
		told, good := map[int]int{}, map[int]bool{}
		for _, b := range say {
			i := int(b & 15)
			name := aws.String(fmt.Sprint(i))
			switch b >> 6 {
			case 0:
				sum := succeed(&fakeEntry{MessageBody: fmt.Sprint("body ", i)}).MD5OfMessageBody
				out.Successful, good[i] = append(out.Successful, types.SendMessageBatchResultEntry{Id: name, MD5OfMessageBody: &sum}), true
				told[i]++
			case 1:
				out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: name, MD5OfMessageBody: &code})
				told[i]++
			case 2:
				out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: name, Code: &code})
				told[i]++
			default:
				if _, err := strconv.Atoi(id); err != nil { // else it may be one of the others
					out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: &id})
				}
			}
		}
		results := read(c, out)
		if len(results) != len(c) {
			t.Fatalf("%d results for %d entries", len(results), len(c))
		}
		for i, r := range results {
			if (r.Outcome == sinks.Accepted) != (told[i] == 1 && good[i]) {
				t.Errorf("entry %d, told %d times: %v (%v)", i, told[i], r.Outcome, r.Err)
			}
			if (r.Err == nil) != (r.Outcome == sinks.Accepted) {
				t.Errorf("entry %d: %v with error %v", i, r.Outcome, r.Err)
			}
		}
	})
}

// inMemory is the way to a fake without a network.
type inMemory struct{ http.Handler }

func (m inMemory) Do(r *http.Request) (*http.Response, error) {
	if a, ok := r.Context().Value(attemptKey{}).(*attempt); ok {
		a.made.Store(true)
		a.connected.Store(true)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// inMemorySink is a sink on a fake.
func inMemorySink(f *fake) *sink {
	c := &client{pool: &http.Transport{}, Client: awssqs.New(awssqs.Options{
		HTTPClient: inMemory{f}, BaseEndpoint: aws.String("http://sqs.invalid"), Region: "r", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		Retryer: aws.NopRetryer{}, RetryMaxAttempts: 1, DisableMessageChecksumValidation: true,
	})}
	return newSink(Settings{MaxBytes: 1 << 20, Parallel: 1}, c, slog.New(slog.DiscardHandler))
}

// FuzzPublish sends a batch to a server that refuses calls and entries as the bytes say. Whatever is divided and sent
// again, every message has one result, the queue has it once if it is accepted and not at all if it is refused, and in a
// FIFO queue nothing overtakes.
func FuzzPublish(f *testing.F) {
	f.Add(bytes.Repeat([]byte{1, 2, 3}, 10), []byte{}, false)
	f.Add(bytes.Repeat([]byte{1, 2, 3, 40}, 10), []byte{1, 1, 2, 1, 0, 3, 1, 4, 1, 1, 1, 0, 0, 200, 130, 131}, true)
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), bytes.Repeat([]byte{2, 1, 5, 140}, 20), true)
	f.Add([]byte{255, 254, 253, 0, 0, 0, 252}, []byte{6, 6, 6, 1, 133}, false)
	f.Fuzz(func(t *testing.T, shape, say []byte, fifo bool) {
		shape = shape[:min(len(shape), 60)]
		server := &fake{limit: 2000, places: map[string][]*fakeEntry{}, dedup: map[string]bool{}}
		next := func() (c byte) {
			if len(say) > 0 {
				c, say = say[0], say[1:]
			}
			return c
		}
		calls := []*fakeReply{nil, refuse(400, "InvalidParameterValue", "x"), refuse(400, "BatchRequestTooLong", "x"), refuse(500, "InternalFailure", "x"), refuse(400, "RequestThrottled", "x"), {502, "<html>"}, {200, "{}"}, {400, ""}}
		codes := []string{"InternalError", "InvalidMessageContents", "RequestThrottled", "KMS.ThrottlingException", "Nonsense"}
		unsure := false // a reply that says nothing
		server.call = func(action string, _ *fakeRequest) *fakeReply {
			if action != "SendMessageBatch" {
				return nil
			}
			r := calls[int(next()&127)%len(calls)]
			unsure = unsure || r != nil
			return r
		}
		server.entry = func(string, *fakeEntry) *fakeFailure {
			if c := next(); c >= 128 {
				return &fakeFailure{Code: codes[int(c)%len(codes)]}
			}
			return nil
		}
		queue := server.create(map[bool]string{true: "q.fifo", false: "q"}[fifo])
		batch, results := messages(queue, len(shape)), make([]sinks.Result, len(shape))
		for i, c := range shape {
			key := fmt.Sprint(c & 7)
			batch[i].Key, batch[i].Payload = &key, body(3+8*int(c))
			results[i].Outcome = 99
		}
		inMemorySink(server).Publish(t.Context(), batch, results)
		have, last, stopped := map[string]int{}, map[string]int{}, map[string]bool{}
		for _, e := range server.received(queue) {
			have[e.attributes()[sinks.HeaderID]]++
		}
		for i, r := range results {
			n, key := have[batch[i].ID], *batch[i].Key
			if r.Outcome > sinks.Failed || (r.Outcome == sinks.Accepted) != (n == 1) || n > 1 || (r.Err == nil) != (r.Outcome == sinks.Accepted) {
				t.Errorf("message %d is there %d times: %v (%v)", i, n, r.Outcome, r.Err)
			}
			if r.Outcome == sinks.Unknown && !unsure {
				t.Errorf("message %d: %v, and every call was answered", i, r.Err)
			}
			if fifo && n == 1 && stopped[key] {
				t.Errorf("message %d of key %s overtook one that may come yet", i, key)
			}
			stopped[key] = stopped[key] || r.Outcome != sinks.Accepted && r.Outcome != sinks.Rejected
		}
		for at, e := range server.received(queue) {
			var i int
			_, _ = fmt.Sscanf(e.attributes()[sinks.HeaderID], "shop/%d", &i)
			if key := e.attributes()[sinks.HeaderKey]; fifo && i < last[key] {
				t.Errorf("message %d of key %s is at place %d, after %d", i, key, at, last[key])
			} else {
				last[key] = i
			}
		}
	})
}
