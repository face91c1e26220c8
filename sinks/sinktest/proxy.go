package sinktest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of one broker: the usual [Line].
type Proxy struct {
	target string
	addr   string

	mu        sync.Mutex
	listener  net.Listener
	swallow   bool
	delay     time.Duration
	conns     map[*proxied]struct{}
	goroutine sync.WaitGroup
}

// proxied is one connection of a client, and the one to the broker that serves it.
type proxied struct {
	client, broker net.Conn
	asked          time.Time // when the last bytes of a request came
	lost           bool      // an answer was dropped
}

// NewProxy listens on a free port and passes everything to target (host:port) until t ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return NewProxyAt(t, "127.0.0.1:0", target)
}

// NewProxyAt listens on an address that the broker tells its clients to come back to.
func NewProxyAt(t testing.TB, addr, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{target: target, addr: l.Addr().String(), conns: map[*proxied]struct{}{}}
	p.serve(l)
	t.Cleanup(func() {
		p.Cut()
		p.goroutine.Wait()
	})
	return p
}

// Addr is where clients connect (host:port). It stays the same over Cut and Heal.
func (p *Proxy) Addr() string { return p.addr }

// Swallow lets requests through and drops every answer from now on.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = true
}

// Cut breaks every connection and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.closeConns(func(*proxied) bool { return true })
}

// Delay holds every answer back until so long after its request, from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Swallow, Cut and Delay.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow, p.delay = false, 0
	p.closeConns(func(c *proxied) bool { return c.lost })
	if p.listener != nil {
		return
	}
	p.serve(p.takeBack())
}

// takeBack listens where the proxy was before the cut. Somebody's outgoing connection may have been given the port
// meanwhile; such connections are short.
func (p *Proxy) takeBack() net.Listener {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		l, err := net.Listen("tcp", p.addr)
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			panic("proxy: take back " + p.addr + ": " + err.Error())
		}
	}
}

func (p *Proxy) closeConns(which func(*proxied) bool) {
	for c := range p.conns {
		if which(c) {
			reset(c.client)
			reset(c.broker)
			delete(p.conns, c)
		}
	}
}

// reset closes a connection with a reset, so that the port is free at once and the peer sees a cut, not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (p *Proxy) serve(l net.Listener) {
	p.listener = l
	p.goroutine.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.goroutine.Go(func() { p.connect(l, client) })
		}
	})
}

func (p *Proxy) connect(l net.Listener, client net.Conn) {
	broker, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	c := &proxied{client: client, broker: broker}
	p.mu.Lock()
	if p.listener != l { // cut while this one was being made
		p.mu.Unlock()
		reset(client)
		reset(broker)
		return
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()

	p.goroutine.Go(func() { // answers
		_, _ = io.Copy(answers{p, c}, broker)
		client.Close()
	})
	_, _ = io.Copy(requests{p, c}, client)
	broker.Close()
	client.Close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// requests writes what the client says to the broker.
type requests struct {
	p *Proxy
	c *proxied
}

func (r requests) Write(b []byte) (int, error) {
	r.p.mu.Lock()
	r.c.asked = time.Now()
	r.p.mu.Unlock()
	return r.c.broker.Write(b)
}

// answers writes what the broker says to the client, when its time has come, unless it is being swallowed.
type answers struct {
	p *Proxy
	c *proxied
}

func (a answers) Write(b []byte) (int, error) {
	a.p.mu.Lock()
	wait := a.p.delay - time.Since(a.c.asked)
	a.p.mu.Unlock()
	time.Sleep(wait)
	a.p.mu.Lock()
	drop := a.p.swallow || a.c.lost
	if drop {
		a.c.lost = true
	}
	a.p.mu.Unlock()
	if drop {
		return len(b), nil
	}
	return a.c.client.Write(b)
}
