package rabbitmq

import (
	"context"
	"fmt"
	"sync"
)

// pool lends generations to one owner at a time, and makes them when they are needed.
type pool struct {
	dialer *dialer
	slots  chan *generation // nil: a place for one that isn't there

	mu     sync.Mutex
	closed int // slots that close has taken for good
}

func newPool(d *dialer, size int) *pool {
	p := &pool{dialer: d, slots: make(chan *generation, size)}
	for range size {
		p.slots <- nil
	}
	return p
}

// acquire waits for a free place and fills it when its generation isn't usable (any more), dialling at most once.
func (p *pool) acquire(ctx context.Context) (*generation, error) {
	var g *generation
	select {
	case g = <-p.slots:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a free connection: %w", context.Cause(ctx))
	}
	if ctx.Err() != nil {
		p.slots <- g
		return nil, context.Cause(ctx)
	}
	if g != nil && g.alive() {
		return g, nil
	}
	if g != nil {
		g.abort(errAbandoned)
	}
	g, err := p.dialer.open(ctx)
	if err != nil {
		p.slots <- nil
	}
	return g, err
}

// release gives a generation back, or ends one that is in doubt.
func (p *pool) release(g *generation, healthy bool) {
	if !healthy || !g.alive() {
		g.abort(errAbandoned)
		g = nil
	}
	p.slots <- g
}

// close waits for the generations that are lent and closes all, within ctx. Called again it does what is left.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ending sync.WaitGroup
	defer ending.Wait()
	for ; p.closed < cap(p.slots); p.closed++ {
		select {
		case g := <-p.slots:
			if g != nil {
				ending.Go(func() { g.close(ctx) })
			}
		case <-ctx.Done():
			return fmt.Errorf("close connections: %d of %d are still in use: %w", cap(p.slots)-p.closed, cap(p.slots), context.Cause(ctx))
		}
	}
	return nil
}
