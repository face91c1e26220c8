package rabbitmq

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
)

// Bodies of every size that matters: none, one byte, one frame exactly, many frames.
func TestBodies(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, nil), b.queue(nil)
	sizes := []int{0, 1, smallBody, frameSize - frameOverhead, frameSize, 5 << 20}
	var batch []sinks.Message
	for i, size := range sizes {
		m := message(string(rune('a'+i)), "/"+q)
		m.Payload, m.Opaque = bytes.Repeat([]byte{0xCE}, size), true // the byte that ends a frame
		batch = append(batch, m)
	}
	wantAll(t, publish(t, s, batch, patience), sinks.Accepted, 0)
	for i, d := range b.read(q, len(sizes)) {
		if !bytes.Equal(d.Body, batch[i].Payload) {
			t.Errorf("body %d: got %d bytes, want %d", i, len(d.Body), sizes[i])
		}
	}
}

// The timestamp is a property in seconds, which can't hold times before 1970; relay-time holds any.
func TestTimestamp(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, nil), b.queue(nil)
	late := time.Date(2026, 1, 2, 3, 4, 5, 999_999_000, time.FixedZone("", 3600))
	early := time.Date(1969, 12, 31, 23, 59, 59, 500_000_000, time.UTC)
	first, second := message("1", "/"+q), message("2", "/"+q)
	first.Time, second.Time = late, early
	wantAll(t, publish(t, s, []sinks.Message{first, second}, patience), sinks.Accepted, 0)
	got := b.read(q, 2)
	if ts := got[0].Timestamp; ts.Unix() != late.Unix() {
		t.Errorf("timestamp: got %v, want %v", ts, late)
	}
	if h := got[0].Headers["relay-time"]; h != "2026-01-02T02:04:05.999999Z" {
		t.Errorf("relay-time: got %v", h)
	}
	if ts := got[1].Timestamp; !ts.IsZero() {
		t.Errorf("timestamp before 1970: got %v, want none", ts)
	}
	if h := got[1].Headers["relay-time"]; h != "1969-12-31T23:59:59.500000Z" {
		t.Errorf("relay-time before 1970: got %v", h)
	}
}

// What the job's headers can't do: stand in for the relay's own, or bring a content type of another case along.
func TestB18OwnHeadersWin(t *testing.T) {
	t.Parallel()
	m := message("1", "/q")
	m.Headers = []sinks.Header{{Name: "Content-Type", Value: "a/b"}, {Name: sinks.HeaderAttempt, Value: "99"}, {Name: "x", Value: int64(5_000_000_000)}}
	got := publishing(&m).Headers
	if got[sinks.HeaderAttempt] != int64(1) || got["x"] != int64(5_000_000_000) || got["Content-Type"] != nil || len(got) != 4 {
		t.Errorf("headers: %v", got)
	}
}

// The limit of one frame for all headers is exact: what fits by our count is taken, one byte more is refused by us.
func TestB18HeadersFillAFrame(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, nil), b.queue(nil)
	fill := func(extra int) sinks.Message {
		m := message("1", "/"+q)
		m.Headers = []sinks.Header{{Name: "t", Value: true}, {Name: "n", Value: int64(1)}, {Name: "f", Value: "1.5"}, {Name: "s", Value: ""}}
		room := frameSize - frameOverhead - headerSize(&m)
		m.Headers[3].Value = string(bytes.Repeat([]byte("v"), room+extra))
		return m
	}
	results := publish(t, s, []sinks.Message{fill(0), fill(1), message("2", "/"+q)}, patience)
	want(t, results[0], sinks.Accepted, 0)
	want(t, results[1], sinks.Rejected, 0, "131065", "131064", "frame_max")
	want(t, results[2], sinks.Accepted, 0)
}

// Two names are routes to the broker: it wants a list, and closes the channel over anything else, with all that is in
// flight on it. Whatever else a job's header may be called reaches every kind of queue and exchange.
func TestHeadersThatRoute(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, one), b.queue(nil)
	wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Accepted, 0) // nothing needs to go alone after that
	for _, name := range []string{"CC", "BCC"} {
		batch := messages(100, "/"+q)
		batch[50].Headers = []sinks.Header{{Name: name, Text: "1", Value: int64(1)}}
		for i, r := range publish(t, s, batch, patience) {
			if i == 50 {
				want(t, r, sinks.Rejected, sinks.ScopeMessage, name, "route")
			} else {
				want(t, r, sinks.Accepted, 0)
			}
		}
	}
}

func TestHeadersThatLookLikeTheBrokers(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, dead := open(t, b.url, one), b.queue(nil)
	var batch []sinks.Message
	for _, name := range []string{
		"cc", "Bcc", "x-cc", "x-death", "x-first-death-queue", "x-delay", "x-match", "x-stream-filter-value", "x-stream-offset", "x-delivery-count", "x-received-from",
		"x-shovelled", "x-recent-history-no-store", "x-message-ttl", "x-expires", "x-priority", "x-user-id", "x-routed-by", "x-mqtt-publish-qos", "x-invalid-headers",
		"user_id", "expiration", "priority", "delivery_mode", "timestamp_in_ms", "JMSType", "hash-on",
	} {
		for _, value := range []any{"", "v", true, int64(-1)} {
			m := message(fmt.Sprint(name, " ", value), "")
			m.Headers = []sinks.Header{{Name: name, Text: fmt.Sprint(value), Value: value}}
			batch = append(batch, m)
		}
	}
	headers := b.exchange("headers", nil)
	b.bind(b.queue(nil), "", headers)
	expiring := b.queue(amqp.Table{"x-message-ttl": int32(0), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	for _, address := range []string{"/" + b.queue(nil), "/" + expiring, "/" + b.queue(amqp.Table{"x-queue-type": "quorum"}), "/" + b.queue(amqp.Table{"x-queue-type": "stream"}), headers + "/"} {
		for i := range batch {
			batch[i].Address = address
		}
		wantAll(t, publish(t, s, batch, patience), sinks.Accepted, 0)
	}
	if got := len(b.read(dead, len(batch))); got != len(batch) {
		t.Errorf("%d of %d messages that had expired arrived", got, len(batch))
	}
}

// Kinds of queue and exchange that the sink knows nothing about.
func TestTopologies(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, nil), b.queue(nil)
	alternate := b.exchange("fanout", nil)
	b.bind(q, "", alternate)
	topic, lazy := b.exchange("topic", nil), b.exchange("direct", amqp.Table{"alternate-exchange": alternate})
	b.bind(q, "order.*.paid", topic)
	for address, n := range map[string]int{
		"/" + b.queue(amqp.Table{"x-queue-type": "quorum"}): 0,
		topic + "/order.eu.paid":                            1,
		lazy + "/nobody":                                    1, // where an alternate exchange catches it, it isn't unroutable
		alternate + "/":                                     1, // a key may be empty
	} {
		if err := check(t, s, address); err != nil {
			t.Errorf("Check(%q): %v", address, err)
		}
		wantAll(t, publish(t, s, messages(20, address), patience), sinks.Accepted, 0)
		if got := len(b.read(q, 20*n)); got != 20*n {
			t.Errorf("%q: %d messages arrived, want %d", address, got, 20*n)
		}
	}
}
