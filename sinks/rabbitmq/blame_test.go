package rabbitmq

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
)

// link looks at the one connection of a sink that has no more.
func link(t *testing.T, s *sink) *conn {
	t.Helper()
	g := <-s.publishers.slots
	s.publishers.slots <- g
	if g == nil {
		t.Fatal("the sink has no connection")
	}
	return g.conn
}

var one = map[string]string{"CONNECTIONS": "1"}

// B14: messages to a missing exchange among good ones cost the neighbours nothing, are never lost, and go out once it is there.
func TestB14MissingExchange(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q, missing := open(t, b.url, one), b.queue(nil), name(t)
	batch := messages(100, "/"+q)
	for i := 0; i < 100; i += 2 {
		batch[i].Address = missing + "/k"
	}
	publish(t, s, messages(1, "/"+q), patience)
	before := link(t, s)
	for range 2 {
		for i, r := range publish(t, s, batch, patience) {
			if i%2 == 0 {
				want(t, r, sinks.Unavailable, sinks.ScopeParent, fmt.Sprintf("%q", missing), "404 NOT_FOUND")
			} else {
				want(t, r, sinks.Accepted, 0)
			}
		}
	}
	wantAll(t, publish(t, s, batch[:1], patience), sinks.Unavailable, sinks.ScopeParent)
	wantAll(t, publish(t, s, batch[1:2], patience), sinks.Accepted, 0)
	if link(t, s) != before {
		t.Errorf("a missing exchange cost the connection: only the channel is lost with it")
	}
	for _, place := range []string{missing + "/k", missing} {
		if err := check(t, s, place); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "404") {
			t.Errorf("Check(%q), which is missing: got %v", place, err)
		}
	}

	b.declare(missing, "direct", nil)
	b.bind(q, "k", missing)
	for _, place := range []string{missing + "/k", missing} {
		if err := check(t, s, place); err != nil {
			t.Errorf("Check(%q), which is there now: %v", place, err)
		}
	}
	wantAll(t, publish(t, s, []sinks.Message{batch[0], batch[2], batch[1]}, patience), sinks.Accepted, 0)
	if got := b.read(q, 105); len(got) != 105 {
		t.Errorf("%d messages in the queue, want 105", len(got))
	}
}

// A proved exchange that vanishes under a full window: nobody can say which messages were taken. All are unknown, of
// the message, so that each is tried alone; alone, each gets the answer that is its own.
func TestExchangeVanishes(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q, x := open(t, b.url, one), b.queue(nil), name(t)
	b.declare(x, "direct", nil)
	b.bind(q, "k", x)
	both := func() []sinks.Message {
		batch := messages(200, "/"+q)
		batch[150].Address = x + "/k"
		return batch
	}
	wantAll(t, publish(t, s, both(), patience), sinks.Accepted, 0)
	b.ids(q, 200)
	b.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, false, false) })

	batch := both()
	results := publish(t, s, batch, patience)
	taken := b.ids(q, 0)
	for i, r := range results {
		switch {
		case r.Outcome == sinks.Accepted && !taken[batch[i].ID]:
			t.Errorf("%d was accepted and isn't in the queue", i)
		case r.Outcome == sinks.Accepted:
		case i == 150 && r.Outcome == sinks.Unavailable: // the only one without an answer
		default:
			want(t, r, sinks.Unknown, sinks.ScopeMessage, "404 NOT_FOUND")
		}
	}
	want(t, publish(t, s, batch[150:151], patience)[0], sinks.Unavailable, sinks.ScopeParent, "404")
	want(t, publish(t, s, batch[149:150], patience)[0], sinks.Accepted, 0)
	for i, r := range publish(t, s, batch, patience) { // and from then on it's known
		if i == 150 {
			want(t, r, sinks.Unavailable, sinks.ScopeParent, "404")
		} else {
			want(t, r, sinks.Accepted, 0)
		}
	}
}

// A message that isn't written because the broker has closed its channel leaves the connection alone, whatever else the
// library writes at that moment: the end of the channel concerns a message, the end of the connection the whole sink.
func TestClosedChannelEndsNoConnection(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, one), b.queue(nil)
	g, err := s.publishers.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.publishers.release(g, true)
	confirm, err := g.channel.PublishWithDeferredConfirm(name(t), "k", true, false, amqp.Publishing{})
	if err != nil {
		t.Fatal(err)
	}
	<-confirm.Done() // the channel is closed: there is no such exchange

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = g.conn.Write([]byte{8, 0, 0, 0, 0, 0, 0, 0xCE}) // a heartbeat
			}
		}
	}()
	for range 2000 {
		r := &run{batch: s.validate(messages(1, "/"+q), make([]sinks.Result, 1)), ctx: t.Context(), start: time.Now(), proof: s.proof, g: g}
		if r.send(0) || !g.stands() {
			t.Errorf("sent on a closed channel, or the connection has ended: %v", g.conn.failure())
			break
		}
	}
	close(stop)
	<-stopped
}

// B15: an acknowledged message that leads nowhere isn't accepted, and it's the right one.
func TestB15Unroutable(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q, x := open(t, b.url, nil), b.queue(nil), b.exchange("direct", nil)
	b.bind(q, "bound", x)
	batch := messages(3000, x+"/bound") // returns come at once, confirms later and out of order: they wait for the disk
	want := map[int]bool{}
	for i := range batch {
		if want[i] = i%3 != 1; !want[i] {
			batch[i].Address = x + "/nowhere"
		}
	}
	results := publish(t, s, batch, patience)
	taken := b.ids(q, 2000)
	for i, r := range results {
		if (r.Outcome == sinks.Accepted) != want[i] || taken[batch[i].ID] != want[i] {
			t.Fatalf("message %d: got %v (%v), in the queue: %v, want both to be %v", i, r.Outcome, r.Err, taken[batch[i].ID], want[i])
		}
	}
	wantAll(t, publish(t, s, messages(1500, x+"/nowhere"), patience), sinks.Failed, sinks.ScopeMessage, "312 NO_ROUTE", `"nowhere"`)
	wantAll(t, publish(t, s, messages(1500, "/"+x), patience), sinks.Unavailable, sinks.ScopeAddress, "doesn't exist", "312", x)
}

// B15: a queue that goes while messages flow. What was accepted before is gone with it, what was returned isn't accepted.
func TestB15QueueDeleted(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, x := open(t, b.url, nil), b.exchange("direct", nil)
	q := name(t)
	b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDeclare(q, true, false, false, false, nil); return err })
	b.bind(q, "k", x)
	flowing, failed := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(failed)
		for end := time.Now().Add(patience); time.Now().Before(end); {
			for _, r := range publish(t, s, messages(1000, x+"/k"), patience) {
				if r.Outcome != sinks.Accepted {
					want(t, r, sinks.Failed, sinks.ScopeMessage, "312")
					return
				}
			}
			select {
			case flowing <- struct{}{}:
			default:
			}
		}
		t.Errorf("no message was returned after %v", patience)
	}()
	<-flowing
	b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q, false, false, false); return err })
	<-failed
	wantAll(t, publish(t, s, messages(10, x+"/k"), patience), sinks.Failed, sinks.ScopeMessage)
}

// The same job twice in a batch, to two addresses or as a copy of itself: returns go to the right one.
func TestSameIDInABatch(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q, x := open(t, b.url, nil), b.queue(nil), b.exchange("headers", nil)
	b.do(func(ch *amqp.Channel) error {
		return ch.QueueBind(q, "", x, false, amqp.Table{"relay-replay": int64(7)})
	})
	m, copied, elsewhere := message("1", x+"/k"), message("1", x+"/k"), message("1", "/"+q)
	copied.Replay = 7
	for _, batch := range [][]sinks.Message{{m, copied, elsewhere}, {elsewhere, copied, m}} {
		for i, r := range publish(t, s, batch, patience) {
			if batch[i].Address == m.Address && batch[i].Replay == 0 {
				want(t, r, sinks.Failed, 0)
			} else {
				want(t, r, sinks.Accepted, 0)
			}
		}
	}
	// The other way round: only the first one is routed.
	x = b.exchange("headers", nil)
	b.do(func(ch *amqp.Channel) error { return ch.QueueBind(q, "", x, false, amqp.Table{"first": true}) })
	m.Address, copied.Address = x+"/k", x+"/k"
	m.Headers = []sinks.Header{{Name: "first", Text: "true", Value: true}}
	for _, batch := range [][]sinks.Message{{m, copied}, {copied, m}} {
		for i, r := range publish(t, s, batch, patience) {
			if batch[i].Replay == 7 {
				want(t, r, sinks.Failed, 0)
			} else {
				want(t, r, sinks.Accepted, 0)
			}
		}
	}
}

// A full queue refuses by nack: those messages failed, the others are there.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, full := open(t, b.url, nil), b.queue(amqp.Table{"x-max-length": int32(5), "x-overflow": "reject-publish"})
	q, x := b.queue(nil), b.exchange("fanout", nil)
	accepted := 0
	for _, r := range publish(t, s, messages(20, "/"+full), patience) {
		if r.Outcome == sinks.Accepted {
			accepted++
			continue
		}
		want(t, r, sinks.Failed, sinks.ScopeMessage, "nack")
	}
	if accepted != 5 {
		t.Errorf("%d accepted, want 5", accepted)
	}
	// Two queues, one of them full: refused, though the other has it. A retry is a duplicate there.
	b.bind(full, "", x)
	b.bind(q, "", x)
	wantAll(t, publish(t, s, messages(10, x+"/"), patience), sinks.Failed, sinks.ScopeMessage, "nack")
	if got := len(b.read(q, 10)); got != 10 {
		t.Errorf("%d messages in the queue that isn't full, want 10", got)
	}
}

// A broker whose limit lies below what goes without proof: one message is over it, its neighbours' answers are lost.
func TestB11TooLargeInAWindow(t *testing.T) {
	t.Parallel()
	node := services.OwnRabbitMQ(t)
	node.Ctl("eval", "application:set_env(rabbit, max_message_size, 1000).")
	b := broker{t, node.URL}
	s, q := open(t, b.url, one), b.queue(nil)
	publish(t, s, messages(1, "/"+q), patience)
	batch := messages(50, "/"+q)
	batch[20].Payload = []byte(strings.Repeat("x", 1001))
	for i, r := range publish(t, s, batch, patience) {
		switch {
		case i == 20:
			want(t, r, sinks.Rejected, sinks.ScopeMessage, "1001", "1000")
		case r.Outcome != sinks.Accepted:
			want(t, r, sinks.Unknown, sinks.ScopeMessage, "406 PRECONDITION_FAILED")
		}
	}
	for i, r := range publish(t, s, batch, patience) { // the limit is known now
		if i == 20 {
			want(t, r, sinks.Rejected, sinks.ScopeMessage, "1001", "1000")
		} else {
			want(t, r, sinks.Accepted, 0)
		}
	}
	// It's believed for a while only.
	node.Ctl("eval", "application:set_env(rabbit, max_message_size, 2000).")
	s.proof.mu.Lock()
	s.proof.limited = s.proof.limited.Add(-2 * proofAge)
	s.proof.mu.Unlock()
	publish(t, s, messages(1, name(t)+"/k"), patience) // the broker believes it for as long as a channel lives
	wantAll(t, publish(t, s, batch, patience), sinks.Accepted, 0)
}
