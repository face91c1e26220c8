package rabbitmq

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// B16: answers are swallowed after the publish. Every call ends in time, and later everything is sent.
func TestB16Silence(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	proxy := sinktest.NewProxy(t, hostOf(t, b.url))
	s, q := open(t, at(t, b.url, proxy.Addr()), one), b.queue(nil)
	wantAll(t, publish(t, s, messages(10, "/"+q), patience), sinks.Accepted, 0)
	b.ids(q, 10)

	proxy.Swallow()
	batch := messages(100, "/"+q)
	wantAll(t, publish(t, s, batch, time.Second), sinks.Unknown, sinks.ScopeSink, "no confirm", "deadline")
	// A connection that never answered costs nothing: messages go out only on one that has proved itself.
	wantAll(t, publish(t, s, batch, time.Second), sinks.Unavailable, sinks.ScopeSink)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Check(ctx, "/"+q); err == nil {
		t.Errorf("Check passes though no answer comes")
	}
	proxy.Heal()
	if err := check(t, s, "/"+q); err != nil {
		t.Errorf("Check after the silence: %v", err)
	}
	b.ids(q, 100)
	wantAll(t, publish(t, s, batch, patience), sinks.Accepted, 0)
}

// An address whose confirms don't come, while others are answered, pauses alone.
func TestSilentAddress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	r := &run{ctx: ctx, start: time.Now(), proof: newProof(), g: &generation{}}
	if got := r.silence(); got != sinks.ScopeSink {
		t.Errorf("nothing was answered: got %v, want sink", got)
	}
	r.proof.answered(address{"", "q"}, 1) // in this call or another
	if got := r.silence(); got != sinks.ScopeAddress {
		t.Errorf("others were answered: got %v, want address", got)
	}
	r.start = time.Now()
	if got := r.silence(); got != sinks.ScopeSink {
		t.Errorf("others were answered earlier: got %v, want sink", got)
	}
	called, off := context.WithCancel(t.Context())
	off()
	if got := (&run{ctx: called, g: r.g}).silence(); got != sinks.ScopeMessage {
		t.Errorf("called off: got %v, want message", got)
	}
}

// A turn that comes when more time has gone than is left isn't used, and what stood in the way isn't the broker's fault.
func TestLateTurn(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, one), b.queue(nil)
	wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Accepted, 0)
	for limit, text := range map[time.Duration]string{2 * time.Second: sinks.ErrLate.Error(), 500 * time.Millisecond: "wait for a free connection"} {
		slot := <-s.publishers.slots // somebody's turn
		time.AfterFunc(1200*time.Millisecond, func() { s.publishers.slots <- slot })
		wantAll(t, publish(t, s, messages(10, "/"+q), limit), sinks.Unavailable, sinks.ScopeMessage, text)
		wantAll(t, publish(t, s, messages(10, "/"+q), patience), sinks.Accepted, 0)
	}
}

// A panic takes no place of the pool along, and leaves nothing for the next batch on the same connection.
func TestPanicWhilePublishing(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	s, q := open(t, b.url, one), b.queue(nil)
	for _, breaks := range []func(g *generation){
		func(g *generation) { g.channel = nil }, // in the pool
		func(g *generation) { g.dialer = nil },  // on the way
	} {
		wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Accepted, 0)
		g := <-s.publishers.slots
		breaks(g)
		s.publishers.slots <- g
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("it didn't panic")
				}
			}()
			publish(t, s, messages(10, "/"+q), patience)
		}()
		if g.channel == nil { // nobody owns it
			g.abort(errAbandoned)
		}
	}
	wantAll(t, publish(t, s, messages(10, "/"+q), patience), sinks.Accepted, 0)
}

// stall is a way to the broker that carries so many bytes of requests and then no more: the peer's window fills up.
type stall struct {
	addr  string
	bytes int64
}

func newStall(t *testing.T, target string, bytes int64) *stall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				server, err := net.Dial("tcp", target)
				if err != nil {
					client.Close()
					return
				}
				all.Go(func() { _, _ = io.Copy(client, server); client.Close() })
				_, _ = io.CopyN(server, client, bytes)
				<-t.Context().Done() // not read any further
				client.Close()
				server.Close()
			})
		}
	})
	return &stall{l.Addr().String(), bytes}
}

// B16: the broker's end stops reading. The call ends in time; what was never handed to the kernel is known not to have been
// taken, and what was taken is known.
func TestB16Stall(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	line := newStall(t, hostOf(t, b.url), 3<<20)
	s, q := open(t, at(t, b.url, line.addr), one), b.queue(nil)
	batch := messages(600, "/"+q)
	for i := range batch {
		batch[i].Payload = []byte(strings.Repeat("x", 100_000)) // 60 MB: more than all buffers on the way
	}
	results := publish(t, s, batch, 3*time.Second)
	taken := b.ids(q, 0)
	count, dropped := map[sinks.Outcome]int{}, 0
	for i, r := range results {
		count[r.Outcome]++
		if r.Outcome == sinks.Unavailable && strings.Contains(r.Err.Error(), "no confirm") {
			dropped++ // it was with the library, and didn't get further
		}
		switch there := taken[batch[i].ID]; {
		case r.Outcome == sinks.Accepted && !there, r.Outcome == sinks.Unavailable && there:
			t.Errorf("message %d is %v (%v), in the queue: %v", i, r.Outcome, r.Err, there)
		case r.Outcome == sinks.Failed, r.Outcome == sinks.Rejected:
			t.Errorf("message %d is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	if count[sinks.Accepted] == 0 || count[sinks.Unknown] == 0 || count[sinks.Unavailable] < 300 || dropped == 0 {
		t.Errorf("got %v, want some accepted, some unknown, most unavailable; %d dropped on the way, want some", count, dropped)
	}
}

// Silent, cut, called off, over and over: no goroutine is left.
func TestHundredGenerations(t *testing.T) {
	b := broker{t, services.RabbitMQ(t)}
	proxy := sinktest.NewProxy(t, hostOf(t, b.url))
	s, q := open(t, at(t, b.url, proxy.Addr()), one), b.queue(nil)
	round := func(i int) {
		publish(t, s, messages(50, "/"+q), patience)
		switch i % 3 {
		case 0: // cut under way
			time.AfterFunc(time.Millisecond, proxy.Cut)
			publish(t, s, messages(50, "/"+q), patience)
		case 1:
			proxy.Swallow()
			publish(t, s, messages(50, "/"+q), 20*time.Millisecond)
		default: // called off
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			time.AfterFunc(time.Millisecond, cancel)
			batch := messages(50, "/"+q)
			s.Publish(ctx, batch, make([]sinks.Result, len(batch)))
			cancel()
		}
		eventually(t, "publishing works again", func() bool {
			proxy.Heal() // again and again: the cut may come late
			return publish(t, s, messages(1, "/"+q), patience)[0].Outcome == sinks.Accepted
		})
	}
	round(0)
	before := runtime.NumGoroutine()
	for i := range 100 {
		round(i)
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+6 })
}

// Close ends calls that wait, whatever they wait for.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	proxy := sinktest.NewProxy(t, hostOf(t, b.url))
	s, q := openUnclosed(t, at(t, b.url, proxy.Addr()), one), b.queue(nil)
	publish(t, s, messages(1, "/"+q), patience)
	proxy.Swallow()
	var calls sync.WaitGroup
	for range 4 { // one waits for confirms, the others for its connection
		calls.Go(func() {
			for _, r := range publish(t, s, messages(10, "/"+q), patience) {
				if r.Outcome != sinks.Unknown && r.Outcome != sinks.Unavailable || r.Scope != sinks.ScopeMessage {
					t.Errorf("got %v of the %v (%v)", r.Outcome, r.Scope, r.Err)
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // whether they wait already can't be seen; every moment must do
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	calls.Wait()
	wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Unavailable, sinks.ScopeMessage, "closed")
	if err := check(t, s, ""); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Check after Close: got %v", err)
	}
}
