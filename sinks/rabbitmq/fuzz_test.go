package rabbitmq

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/sinks"
)

// played publishes a batch on a connection to a player that does as say says, until every message has its result.
func played(t *testing.T, batch []sinks.Message, window int, say []byte) (*player, []sinks.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ours, theirs := net.Pipe()
	p := newPlayer(t, theirs, say)
	served := make(chan struct{})
	go func() { defer close(served); p.serve() }()
	e := endpoint{addr: "player", auth: []amqp.Authentication{&amqp.PlainAuth{Username: "u", Password: "p"}}}
	d := newDialer("rabbitmq", []endpoint{e}, window, slog.New(slog.DiscardHandler))
	c := newConn(ours, ours, false)
	link, err := amqp.Open(c, libraryConfig("rabbitmq", &e))
	if err != nil {
		t.Fatal(err)
	}
	d.frame.Store(int64(link.Config.FrameSize))
	g := newGeneration(d, e.addr, c, link)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	s, results := newSink(d, 1), make([]sinks.Result, len(batch))
	for i := range results {
		results[i].Outcome = undecided
	}
	stop := context.AfterFunc(ctx, func() { g.abort(context.Cause(ctx)) })
	r := &run{batch: s.validate(batch, results), ctx: ctx, start: time.Now(), proof: s.proof, g: g}
	r.publish()
	stop()
	if ctx.Err() != nil {
		t.Error("the player fell silent")
	}
	g.abort(errSinkClosed)
	<-served
	return p, results
}

// undecided is no outcome: a result that nobody has written.
const undecided = sinks.Outcome(99)

// FuzzOutcomes has a broker that acknowledges late, returns, refuses, closes the channel and cuts the connection as the
// bytes say. Every message gets exactly one result, and a true one.
func FuzzOutcomes(f *testing.F) {
	f.Add(uint8(30), []byte{}, uint8(4))
	f.Add(uint8(30), []byte{1, 1, 1, 0, 1, 2, 1, 3, 1, 1, 4, 1, 1, 0, 2, 4, 6, 1, 1, 5, 0, 1}, uint8(7))
	f.Add(uint8(200), bytes.Repeat([]byte{1, 0, 2, 1, 1, 3, 1, 8, 9, 10, 1, 4}, 12), uint8(50))
	f.Add(uint8(60), append(bytes.Repeat([]byte{1}, 20), 7), uint8(40))
	f.Add(uint8(8), []byte{4, 4, 4, 4}, uint8(1))
	f.Fuzz(func(t *testing.T, n uint8, say []byte, window uint8) {
		batch := messages(int(n), "")
		for i := range batch {
			batch[i].Address = []string{"x/a", "x/b", "/q", "y/a"}[i%4]
			batch[i].Payload = make([]byte, i*37%101)
		}
		p, results := played(t, batch, 1+int(window%64), say)
		for i, r := range results {
			taken := p.taken[batch[i].ID]
			switch r.Outcome {
			case sinks.Accepted:
				if taken != 1 {
					t.Errorf("message %d is accepted, the broker took it %d times", i, taken)
				}
			case sinks.Unknown:
				if taken > 1 {
					t.Errorf("message %d was taken %d times", i, taken)
				}
			case sinks.Unavailable, sinks.Failed, sinks.Rejected:
				if taken != 0 {
					t.Errorf("message %d is %v (%v), and the broker took it", i, r.Outcome, r.Err)
				}
			default:
				t.Errorf("message %d has no result", i)
			}
			if (r.Err == nil) != (r.Outcome == sinks.Accepted) {
				t.Errorf("message %d: %v with error %v", i, r.Outcome, r.Err)
			}
		}
	})
}

// FuzzForm sends one message of any content. A reader of the protocol's own finds everything in it, and its headers take
// the bytes that the sink counts.
func FuzzForm(f *testing.F) {
	f.Add("order", "k", true, []byte(`{"a":1}`), "region", "eu", int64(5_000_000_000), true, int64(0), int64(1_772_600_767))
	f.Add("", "", true, []byte{}, "Content-Type", "a/b", int64(-1), false, int64(7), int64(-5))
	f.Add(strings.Repeat("k", 256), "é😀", false, bytes.Repeat([]byte{0xCE}, 9000), strings.Repeat("n", 255), strings.Repeat("v", 3700), int64(0), false, int64(-1), int64(0))
	f.Add("k", strings.Repeat("k", 4000), true, []byte("x"), "n", "", int64(1), true, int64(0), int64(1))
	f.Fuzz(func(t *testing.T, kind, key string, hasKey bool, payload []byte, name, text string, number int64, yes bool, replay, at int64) {
		if name == "" || strings.HasPrefix(strings.ToLower(name), "relay-") || !utf8.ValidString(kind+key+name+text) {
			return // none of these comes to a sink
		}
		m := sinks.Message{ID: "shop/1", Address: "x/y", Kind: kind, Attempt: 3, Time: time.Unix(at%(1<<40), 0).UTC(), Replay: replay, Payload: payload, ContentType: "a/b"}
		if hasKey {
			m.Key = &key
		}
		m.Headers = []sinks.Header{{Name: name, Value: text}, {Name: name + "#", Value: number}, {Name: name + "?", Value: yes}}
		p, results := played(t, []sinks.Message{m}, 1, nil)
		content := p.contents[m.ID]
		if err := checkMessage(&m, pipeFrame); err != nil {
			if results[0].Outcome != sinks.Rejected || content != nil {
				t.Errorf("got %v, want it to be refused: %v", results[0], err)
			}
			return
		}
		if results[0].Outcome != sinks.Accepted || !bytes.Equal(p.bodies[m.ID], payload) {
			t.Fatalf("got %v (%v), a body of %d bytes, want %d", results[0].Outcome, results[0].Err, len(p.bodies[m.ID]), len(payload))
		}
		want := map[string]any{"content-type": "a/b", "delivery-mode": byte(2), "message-id": m.ID, "type": kind, "relay-kind": kind,
			"relay-attempt": int64(3), "relay-time": m.Time.Format(sinks.TimeFormat), name + "#": number, name + "?": yes}
		size := headerSize(&m)
		if m.Time.Unix() >= 0 {
			want["timestamp"] = m.Time.Unix()
		} else {
			size -= 8
		}
		if !strings.EqualFold(name, contentType) {
			want[name] = text
		}
		if hasKey {
			want["relay-key"] = key
		}
		if replay != 0 {
			want["relay-replay"] = replay
		}
		if kind == "" {
			delete(want, "type")
			size--
		}
		if got := properties(t, content); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		if len(content) != size {
			t.Errorf("the header frame has %d bytes, the sink counts %d", len(content), size)
		}
	})
}

// FuzzAddress reads any address. What is taken can be written again, and means the same.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"orders/new.paid", "/queue", "a%2Fb/c/d", "a%2fb/", "/", "", "x", "%2F/%2F", "a/b%2Fc%252F", "é/\x00", strings.Repeat("x", 256) + "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			return
		}
		exchange, key, _ := strings.Cut(text, "/")
		escaped := func(s string) int { return strings.Count(strings.ToUpper(s), "%2F") }
		if x, k := strings.Count(a.exchange, "/"), strings.Count(a.key, "/"); x != escaped(exchange) || k != escaped(key)+strings.Count(key, "/") {
			t.Errorf("%q: %d and %d slashes in %v", text, x, k, a)
		}
		again, err := parseAddress(strings.ReplaceAll(a.exchange, "/", "%2F") + "/" + strings.ReplaceAll(a.key, "/", "%2F"))
		if err != nil || again != a {
			t.Errorf("%q: got %v, written again %v (%v)", text, a, again, err)
		}
		if bad := a.check(); bad == nil && (len(a.exchange) > maxShort || len(a.key) > maxShort || !utf8.ValidString(a.exchange+a.key)) {
			t.Errorf("%q can't be sent and is taken", text)
		}
	})
}
