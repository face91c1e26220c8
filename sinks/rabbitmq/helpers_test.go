package rabbitmq

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/sinks"
)

const patience = 30 * time.Second

// decode reads settings as cmd/relay does.
func decode(t testing.TB, env map[string]string) *settings {
	t.Helper()
	vars := config.Environ{}
	for name, value := range env {
		vars["RELAY_RABBITMQ_"+name] = value
	}
	s := &settings{}
	for _, p := range config.Decode(vars, "RELAY_RABBITMQ_", s) {
		t.Fatalf("settings: %v", p)
	}
	return s
}

// openUnclosed makes a sink that the caller closes.
func openUnclosed(t testing.TB, url string, env map[string]string) *sink {
	t.Helper()
	all := map[string]string{"URL": url}
	for name, value := range env {
		all[name] = value
	}
	s, err := decode(t, all).Open("rabbitmq", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s.(*sink)
}

func open(t testing.TB, url string, env map[string]string) *sink {
	t.Helper()
	s := openUnclosed(t, url, env)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// broker is a test's own way to the node, beside the sink.
type broker struct {
	testing.TB
	url string
}

// do runs f with a channel of its own.
func (b broker) do(f func(ch *amqp.Channel) error) {
	b.Helper()
	conn, err := amqp.Dial(b.url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.CloseDeadline(time.Now().Add(5 * time.Second))
	ch, err := conn.Channel()
	if err == nil {
		err = f(ch)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func name(t testing.TB) string {
	return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + "-" + rand.Text()[:8]
}

// queue makes a durable queue that goes with the test.
func (b broker) queue(args amqp.Table) string {
	b.Helper()
	q := name(b)
	b.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q, true, false, false, false, args)
		return err
	})
	b.Cleanup(func() {
		b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q, false, false, false); return err })
	})
	return q
}

// exchange makes a durable exchange that goes with the test.
func (b broker) exchange(kind string, args amqp.Table) string {
	b.Helper()
	x := name(b)
	b.declare(x, kind, args)
	return x
}

func (b broker) declare(x, kind string, args amqp.Table) {
	b.Helper()
	b.do(func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, kind, true, false, false, false, args) })
	b.Cleanup(func() { b.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, false, false) }) })
}

func (b broker) bind(queue, key, exchange string) {
	b.Helper()
	b.do(func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, exchange, false, nil) })
}

// read takes what a queue has: at least n messages, and then until none came for a moment.
func (b broker) read(queue string, n int) (got []amqp.Delivery) {
	b.Helper()
	b.do(func(ch *amqp.Channel) error {
		from, err := ch.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			return err
		}
		deadline := time.After(patience)
		for {
			quiet := patience
			if len(got) >= n {
				quiet = 300 * time.Millisecond
			}
			select {
			case d := <-from:
				got = append(got, d)
			case <-time.After(quiet):
				return nil
			case <-deadline:
				return nil
			}
		}
	})
	return got
}

// ids of messages that a queue has, each once or the test fails.
func (b broker) ids(queue string, n int) map[string]bool {
	b.Helper()
	ids := map[string]bool{}
	for _, d := range b.read(queue, n) {
		if ids[d.MessageId] {
			b.Errorf("%s arrived twice", d.MessageId)
		}
		ids[d.MessageId] = true
	}
	return ids
}

func message(id, address string) sinks.Message {
	return sinks.Message{
		ID: "test/" + id, Address: address, Kind: "k", Attempt: 1, Time: time.Now().UTC(),
		ContentType: "application/json", Payload: []byte(`{"id":"` + id + `"}`),
	}
}

func messages(n int, address string) []sinks.Message {
	batch := make([]sinks.Message, n)
	for i := range batch {
		batch[i] = message(fmt.Sprint(i), address)
	}
	return batch
}

// publish sends a batch with time enough, or less.
func publish(t testing.TB, s sinks.Sink, batch []sinks.Message, limit time.Duration) []sinks.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	results := make([]sinks.Result, len(batch))
	start := time.Now()
	s.Publish(ctx, batch, results)
	if took := time.Since(start); took > limit+2*time.Second {
		t.Errorf("Publish took %v, its deadline was %v", took, limit)
	}
	for i, r := range results {
		if (r.Outcome == sinks.Accepted) != (r.Err == nil) {
			t.Errorf("result %d: %v with error %v", i, r.Outcome, r.Err)
		}
	}
	return results
}

// want fails unless a result is as given and its error holds each text.
func want(t testing.TB, r sinks.Result, outcome sinks.Outcome, scope sinks.Scope, texts ...string) {
	t.Helper()
	if r.Outcome != outcome || r.Scope != scope {
		t.Errorf("got %v of the %v (%v), want %v of the %v", r.Outcome, r.Scope, r.Err, outcome, scope)
	}
	for _, text := range texts {
		if r.Err == nil || !strings.Contains(r.Err.Error(), text) {
			t.Errorf("got error %v, want it to hold %q", r.Err, text)
		}
	}
}

func wantAll(t testing.TB, results []sinks.Result, outcome sinks.Outcome, scope sinks.Scope, texts ...string) {
	t.Helper()
	for i := range results {
		want(t, results[i], outcome, scope, texts...)
		if t.Failed() {
			t.Fatalf("result %d of %d is the first", i, len(results))
		}
	}
}

func check(t testing.TB, s sinks.Sink, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Check(ctx, address)
}

// eventually looks at a condition until it holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// at gives the URL with another host.
func at(t testing.TB, text, host string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = host
	return u.String()
}

func hostOf(t testing.TB, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
