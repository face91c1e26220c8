package rabbitmq

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// TestSuite runs the common suite against a node whose largest message is small enough to be exceeded.
func TestSuite(t *testing.T) {
	node := services.OwnRabbitMQ(t)
	node.Ctl("eval", "application:set_env(rabbit, max_message_size, 1000000).")
	var places atomic.Int64
	sinktest.Run(t, sinktest.Harness{
		Open: func(t *testing.T) sinks.Sink { return openUnclosed(t, node.URL, nil) },
		Address: func(t *testing.T) string { // in turn a queue by its name, and an exchange with a queue of the same name
			b := broker{t, node.URL}
			q := b.queue(nil)
			if places.Add(1)%2 == 0 {
				return "/" + q
			}
			b.declare(q, "direct", nil)
			b.bind(q, "a/b", q)
			return q + "/a/b"
		},
		Read: func(t *testing.T, address string, n int) []sinktest.Received {
			a, err := parseAddress(address)
			if err != nil {
				t.Fatal(err)
			}
			queue := a.exchange
			if queue == "" {
				queue = a.key
			}
			var got []sinktest.Received
			for _, d := range (broker{t, node.URL}).read(queue, n) {
				got = append(got, received(t, d))
			}
			return got
		},
		Missing: func(t *testing.T) string {
			if places.Add(1)%2 == 0 {
				return "/" + name(t)
			}
			return name(t) + "/key"
		},
		Parent: (&settings{}).Parent,
		Away:   func(t *testing.T) sinks.Sink { return openUnclosed(t, "amqp://guest:guest@127.0.0.1:1/", nil) },
		Outage: func(t *testing.T) (sinks.Sink, string, sinktest.Line) {
			proxy := sinktest.NewProxy(t, node.Addr)
			return openUnclosed(t, at(t, node.URL, proxy.Addr()), nil), "/" + (broker{t, node.URL}).queue(nil), proxy
		},
		TooLarge: 1_000_000,
		Refused: map[string]func(m *sinks.Message){
			"no slash":               func(m *sinks.Message) { m.Address = "orders" },
			"nothing":                func(m *sinks.Message) { m.Address = "/" },
			"exchange of 256 bytes":  func(m *sinks.Message) { m.Address = strings.Repeat("x", 256) + "/k" },
			"key of 256 bytes":       func(m *sinks.Message) { m.Address += strings.Repeat("x", 256) },
			"message id of 256":      func(m *sinks.Message) { m.ID = strings.Repeat("x", 256) },
			"kind of 256 bytes":      func(m *sinks.Message) { m.Kind = strings.Repeat("x", 256) },
			"content type of 256":    func(m *sinks.Message) { m.ContentType = strings.Repeat("x", 256) },
			"header name of 300":     func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: strings.Repeat("x", 300), Value: "v"}} },
			"header of another type": func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: "x", Value: []string{"v"}}} },
			"header CC":              func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: "CC", Text: "v", Value: "v"}} },
			"header BCC":             func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: "BCC", Text: "true", Value: true}} },
			"header without value":   func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: "x"}} },
			"headers over a frame": func(m *sinks.Message) {
				m.Headers = []sinks.Header{{Name: "x", Value: strings.Repeat("v", 140_000)}}
			},
		},
	})
}

// received turns a delivery into the product's words.
func received(t *testing.T, d amqp.Delivery) sinktest.Received {
	t.Helper()
	r := sinktest.Received{ID: d.MessageId, Kind: d.Type, ContentType: d.ContentType, Payload: d.Body, Headers: map[string]any{}}
	for name, value := range d.Headers {
		switch name {
		case sinks.HeaderKind:
			if value != d.Type {
				t.Errorf("header %s of %s: got %q, want the type %q", name, d.MessageId, value, d.Type)
			}
		case sinks.HeaderTime:
			r.Time = value.(string)
		case sinks.HeaderAttempt:
			r.Attempt = fmt.Sprint(value.(int64))
		case sinks.HeaderKey:
			key := value.(string)
			r.Key = &key
		case sinks.HeaderReplay:
			r.Replay = fmt.Sprint(value.(int64))
		default:
			if strings.EqualFold(name, contentType) {
				t.Errorf("the content type is a header of %s too", d.MessageId)
			}
			r.Headers[name] = value
		}
	}
	if d.DeliveryMode != amqp.Persistent {
		t.Errorf("%s isn't persistent", d.MessageId)
	}
	return r
}
