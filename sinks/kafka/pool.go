package kafka

import (
	"context"
	"sync"
	"time"
)

// idleTimeout is below a broker's own (connections.max.idle.ms, ten minutes), so that it is us who give up a
// connection, not the broker at the moment when we use it.
const idleTimeout = 5 * time.Minute

// pool holds the connections to one broker.
type pool struct {
	address string
	dialer  *dialer
	slots   chan struct{} // one for each produce request in flight

	mu     sync.Mutex
	idle   []*conn   // the one used last is the next to be used
	quiet  time.Time // until then the broker wants no requests
	closed bool
}

func newPool(d *dialer, address string, maxInFlight int) *pool {
	return &pool{address: address, dialer: d, slots: make(chan struct{}, maxInFlight)}
}

// acquire waits for a turn to produce, and for the end of a throttle. A turn that comes too late in a call that began at
// start is none. release gives the turn back.
func (p *pool) acquire(ctx context.Context, start time.Time) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	err := p.wait(ctx)
	if err == nil {
		err = inTime(ctx, start)
	}
	if err != nil {
		p.release()
	}
	return err
}

func (p *pool) release() { <-p.slots }

// wait waits until the broker takes requests again. A broker that throttles stops reading: what we sent would lie
// there without a word and its fate would be unknown.
func (p *pool) wait(ctx context.Context) error {
	p.mu.Lock()
	left := time.Until(p.quiet)
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return sleep(ctx, left)
}

// throttle notes that the broker wants no requests for a while.
func (p *pool) throttle(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.quiet) {
		p.quiet = until
	}
}

// get returns a connection that is idle and still open, or a new one.
func (p *pool) get(ctx context.Context) (*conn, error) {
	for {
		c := p.pop()
		if c == nil {
			return p.dialer.dial(ctx, p.address)
		}
		if alive(c, time.Now()) {
			return c, nil
		}
		c.close()
	}
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return c
}

// alive says whether an idle connection may be used: the broker hasn't closed it, nor will soon.
func alive(c *conn, now time.Time) bool {
	expired := !c.expires.IsZero() && now.After(c.expires)
	return !expired && now.Sub(c.idleSince) < idleTimeout && c.in.Buffered() == 0 && quiet(c.raw)
}

// put gives a connection back.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.broken || p.closed {
		c.close()
		return
	}
	c.idleSince = time.Now()
	for len(p.idle) > 0 && c.idleSince.Sub(p.idle[0].idleSince) > idleTimeout {
		p.idle[0].close()
		p.idle = p.idle[1:]
	}
	p.idle = append(p.idle, c)
}

// hasIdle says whether somebody has spoken with this broker lately.
func (p *pool) hasIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// close closes idle connections now and those in use when they come back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
}

// sleep waits, or less when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}
