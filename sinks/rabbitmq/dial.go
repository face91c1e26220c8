package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// avoidance is how long a node that failed is passed over while another one didn't.
const avoidance = 30 * time.Second

// dialer makes connections, each to the next node. It tries one node a call: whoever calls it decides when to try again.
type dialer struct {
	name   string // of the sink; the broker shows it beside the connection
	log    *slog.Logger
	window int
	direct bool // don't gather writes; for the benchmark
	frame  atomic.Int64

	mu        sync.Mutex
	endpoints []endpoint
	next      int
	failed    []time.Time // by endpoint
}

// newDialer begins at a random node, so that many relays don't all begin at the first.
func newDialer(name string, endpoints []endpoint, window int, log *slog.Logger) *dialer {
	d := &dialer{
		name: name, window: window, endpoints: endpoints, log: log,
		next: rand.IntN(len(endpoints)), failed: make([]time.Time, len(endpoints)),
	}
	d.frame.Store(frameSize)
	return d
}

// frameSize is what the relay asks for, and what RabbitMQ has unless it was told otherwise.
const frameSize = 128 << 10

// pick returns the node whose turn it is, without those that have just failed if that leaves any.
func (d *dialer) pick() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	best := d.next % len(d.endpoints)
	for i := range d.endpoints {
		if at := (d.next + i) % len(d.endpoints); time.Since(d.failed[at]) > avoidance {
			best = at
			break
		}
	}
	d.next = best + 1
	return best
}

func (d *dialer) mark(at int, failed time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[at] = failed
}

// open makes a generation on the next node, and proves that the broker takes messages on it.
func (d *dialer) open(ctx context.Context) (*generation, error) {
	at := d.pick()
	e := &d.endpoints[at]
	ctx, cancel := context.WithTimeoutCause(ctx, e.handshake, fmt.Errorf("no answer within %v", e.handshake))
	defer cancel()
	g, err := d.openAt(ctx, e)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // called off: it says nothing about the node
			d.mark(at, time.Now())
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("connect to %s: %s", e.addr, words(err))
	}
	d.mark(at, time.Time{})
	d.log.Debug("connected", "sink", d.name, "node", e.addr)
	return g, nil
}

func (d *dialer) openAt(ctx context.Context, e *endpoint) (*generation, error) {
	c, err := d.connect(ctx, e)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.abort(context.Cause(ctx)) })
	defer stop()
	link, err := amqp.Open(c, libraryConfig(d.name, e))
	if err != nil {
		c.abort(err)
		return nil, err
	}
	d.frame.Store(int64(link.Config.FrameSize))
	g := newGeneration(d, e.addr, c, link)
	if err := g.start(); err != nil {
		g.abort(err)
		return nil, err
	}
	if !stop() { // ctx has ended and the connection with it
		g.abort(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return g, nil
}

// connect makes the TCP connection, with TLS below the buffer, so that what has gathered shares its records.
func (d *dialer) connect(ctx context.Context, e *endpoint) (*conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, err
	}
	stream := raw
	if e.tls != nil {
		client := tls.Client(raw, e.tls)
		if err := client.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("TLS: %w", err)
		}
		stream = client
	}
	return newConn(raw, stream, d.direct), nil
}

// libraryConfig is all that the library gets. Recovery stays nil: after a reconnect it gives confirms to the wrong messages.
func libraryConfig(name string, e *endpoint) amqp.Config {
	properties := amqp.NewConnectionProperties()
	properties["product"] = "relay"
	properties["connection_name"] = "relay " + name
	return amqp.Config{
		SASL:       e.auth,
		Vhost:      e.vhost,
		Heartbeat:  e.heartbeat,
		FrameSize:  frameSize,
		Locale:     "en_US",
		Properties: properties,
	}
}

// words gives an error's text as an operator reads it: the broker's code and words, without the library's wrapping.
func words(err error) string {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return fmt.Sprintf("%d %s", e.Code, e.Reason)
	}
	return err.Error()
}
