package kafka

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestCutBeforeReply: the broker has it or not, nobody knows. Nothing is sent again.
func TestCutBeforeReply(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	requests := count(cluster, kmsg.Produce)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	s := open(t, cluster.ListenAddrs()[0])
	wantAll(t, publish(t, s, messages("a", 3)), sinks.Unknown, sinks.ScopeSink)
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	accepted(t, publish(t, s, messages("a", 3)))
}

// listener remembers the connections that it has accepted.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
	}
	return c, err
}

// TestIdleConnectionsDie as they do when a broker restarts. The next batch goes out by a new connection: it is not
// unknown, and costs no attempt.
func TestIdleConnectionsDie(t *testing.T) {
	t.Parallel()
	var l listener
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		inner, err := net.Listen(network, address)
		l.Listener = inner
		return &l, err
	}))
	s := open(t, cluster.ListenAddrs()[0])
	for range 5 {
		accepted(t, publish(t, s, messages("a", 3)))
		l.mu.Lock()
		for _, c := range l.conns {
			c.Close()
		}
		l.conns = nil
		l.mu.Unlock()
		waitUntilDead(t, s)
	}
	read(t, cluster.ListenAddrs()[0], "a", 15)
}

// waitUntilDead waits until the end of the idle connections has come here.
func waitUntilDead(t *testing.T, s *sink) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		living := 0
		for _, p := range s.cluster.pools {
			for _, c := range p.idle {
				if quiet(c.raw) {
					living++
				}
			}
		}
		if living == 0 {
			return
		}
	}
	t.Fatal("the connections live on")
}

// silent has the broker answer no produce request, and counts them.
func silent(c *kfake.Cluster) *atomic.Int64 {
	var held atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		held.Add(1)
		return nil, nil, true
	})
	return &held
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}

// TestGivingUp: the caller's cancelling says nothing about the broker, a deadline does. Both are prompt, and what the
// broker has seen is unknown.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	held := silent(cluster)
	s := open(t, cluster.ListenAddrs()[0])

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := make([]sinks.Result, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Publish(ctx, messages("a", 3), results)
	}()
	until(t, "the broker has the request", func() bool { return held.Load() == 1 })
	start := time.Now()
	cancel()
	<-done
	if took := time.Since(start); took > time.Second {
		t.Errorf("returned %v after the cancel", took)
	}
	wantAll(t, results, sinks.Unknown, sinks.ScopeMessage)
	wantAll(t, publishIn(t, s, messages("a", 3), 200*time.Millisecond), sinks.Unknown, sinks.ScopeSink)
	until(t, "the broker has the other request", func() bool { return held.Load() == 2 })
}

// TestCloseEndsCalls: as if their context had ended, and at once.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	held := silent(cluster)
	s := open(t, cluster.ListenAddrs()[0])
	results := make(chan []sinks.Result)
	go func() { results <- publish(t, s, messages("a", 3)) }()
	until(t, "the broker has the request", func() bool { return held.Load() == 1 })
	start := time.Now()
	closeSink(t, s)
	wantAll(t, <-results, sinks.Unknown, sinks.ScopeMessage)
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	wantAll(t, publish(t, s, messages("a", 3)), sinks.Unavailable, sinks.ScopeMessage)
	if err := s.Check(t.Context(), "a"); !errors.Is(err, errClosed) {
		t.Errorf("Check: %v", err)
	}
}

// TestInFlight: no more requests to a broker at once than the setting says. What gets no turn was never sent.
func TestInFlight(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	held := silent(cluster)
	s := open(t, cluster.ListenAddrs()[0], map[string]string{"MAX_IN_FLIGHT": "3"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the same end for all: no turn comes free before
	defer cancel()
	var unknown, unavailable atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			r := make([]sinks.Result, 1)
			s.Publish(ctx, messages("a", 1), r)
			switch r[0].Outcome {
			case sinks.Unknown:
				unknown.Add(1)
			case sinks.Unavailable:
				unavailable.Add(1)
			}
		})
	}
	all.Wait()
	if held.Load() != 3 || unknown.Load() != 3 || unavailable.Load() != 7 {
		t.Errorf("%d requests held, %d results unknown, %d unavailable; want 3, 3 and 7", held.Load(), unknown.Load(), unavailable.Load())
	}
}

// speak serves every connection with f and returns the address.
func speak(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// TestNoKafka: what answers isn't Kafka. Nothing was sent, the reason says what to do, and no length that it seems to
// announce is believed.
func TestNoKafka(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, want string }{
		"http":          {"HTTP/1.1 400 Bad Request\r\n\r\n", "garbled"},
		"tls alert":     {"\x15\x03\x03\x00\x02\x02\x46", "set TLS to true"},
		"silence":       {"", "TLS"},
		"another reply": {"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00", "request 99"},
		"many elements": {"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := speak(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1024))
				_, _ = io.WriteString(conn, c.says)
			})
			s := open(t, addr)
			results := publishIn(t, s, messages("a", 2), 10*time.Second)
			wantAll(t, results, sinks.Unavailable, sinks.ScopeSink)
			if text := results[0].Err.Error(); !strings.Contains(text, c.want) || !strings.Contains(text, addr) {
				t.Errorf("got %q, want it to name the broker and %q", text, c.want)
			}
		})
	}
}

// TestGarbledReply to a produce request: unknown.
func TestGarbledReply(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	answerWith(cluster, func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
		acceptAll(req, resp)
		resp.Version = 3 // a form that the client doesn't expect
	})
	s := open(t, cluster.ListenAddrs()[0])
	results := publish(t, s, messages("a", 2))
	wantAll(t, results, sinks.Unknown, sinks.ScopeSink)
	if !errors.Is(results[0].Err, errGarbled) {
		t.Errorf("got %v", results[0].Err)
	}
	accepted(t, publish(t, s, messages("a", 2)))
}

// TestOneBrokerOfTheListIsEnough, and the reasons of all are told when none is.
func TestOneBrokerOfTheListIsEnough(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 2, kfake.SeedTopics(2, "a"))
	s := open(t, "127.0.0.1:1,"+cluster.ListenAddrs()[1]+",localhost:2")
	accepted(t, publish(t, s, messages("a", 100)))
	text := publish(t, open(t, "127.0.0.1:1,127.0.0.1:2"), messages("a", 1))[0].Err.Error()
	if !strings.Contains(text, "127.0.0.1:1:") || !strings.Contains(text, "127.0.0.1:2:") || strings.Contains(text, "\n") {
		t.Errorf("got %q", text)
	}
}

// TestTwoClusters at once: each message is in its own.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	clusters := []*kfake.Cluster{fake(t, 1, kfake.SeedTopics(2, "a")), fake(t, 3, kfake.SeedTopics(2, "a"))}
	var all sync.WaitGroup
	for i, c := range clusters {
		s := open(t, c.ListenAddrs()[0])
		for range 10 {
			all.Go(func() { accepted(t, publish(t, s, messages("a", 10*(i+1)))) })
		}
	}
	all.Wait()
	for i, c := range clusters {
		got := ids(read(t, c.ListenAddrs()[0], "a", 100*(i+1)))
		if slices.Sort(got); len(slices.Compact(got)) != 10*(i+1) {
			t.Errorf("cluster %d has %v", i, got)
		}
	}
}

// TestSessionsEnd: a connection whose login is about to end isn't used again, nor is one that was idle for long.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	addr := speak(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	now := time.Now()
	for _, c := range []struct {
		name string
		conn conn
		want bool
	}{
		{"fresh", conn{idleSince: now}, true}, {"session lasts", conn{idleSince: now, expires: now.Add(time.Second)}, true},
		{"session over", conn{idleSince: now, expires: now.Add(-time.Second)}, false}, {"long idle", conn{idleSince: now.Add(-2 * idleTimeout)}, false},
	} {
		c.conn.raw, c.conn.in = raw, bufio.NewReader(raw)
		if got := alive(&c.conn, now); got != c.want {
			t.Errorf("%s: alive is %v, want %v", c.name, got, c.want)
		}
	}
}

// TestGivenUpIsNotSent: what a broker hadn't read when a request was given up doesn't reach it later.
func TestGivenUpIsNotSent(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	letRead := sync.OnceFunc(func() { close(read) })
	ended := make(chan error, 1)
	addr := speak(t, func(c net.Conn) {
		<-read
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	forgetUnsent(raw, true)
	c := &conn{net: raw, raw: raw, in: bufio.NewReader(raw)}
	t.Cleanup(letRead)
	request := make([]byte, 64<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, _, err := c.exchange(ctx, request, 1); !errors.Is(err, errTimeout) {
		t.Fatalf("got %v", err)
	}
	c.close()
	letRead()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the broker reads to the end (%v), want a reset", err)
	}
}
