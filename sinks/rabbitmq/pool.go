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
		p.put(nil)
	}
	return p
}

// acquire waits for a free place and fills it.
func (p *pool) acquire(ctx context.Context) (*generation, error) {
	slot, err := p.wait(ctx)
	if err != nil {
		return nil, err
	}
	return p.fill(ctx, slot)
}

// wait takes a free place, with what is in it.
func (p *pool) wait(ctx context.Context) (*generation, error) {
	select {
	case slot := <-p.slots:
		return slot, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a free connection: %w", context.Cause(ctx))
	}
}

// put makes a place free, with what is in it.
func (p *pool) put(slot *generation) { p.slots <- slot }

// fill gives a place a new generation when the one there isn't usable any more, dialling at most once. If that fails, or
// panics, the place is free again.
func (p *pool) fill(ctx context.Context, slot *generation) (filled *generation, err error) {
	var left *generation
	defer func() {
		if filled == nil {
			p.put(left)
		}
	}()
	g, err := p.usable(ctx, slot)
	if err != nil {
		left = g
		return nil, err
	}
	return g, nil
}

// usable returns g, with a fresh channel if the broker has closed the last one, or a new generation. With an error it
// returns what stays in the place.
func (p *pool) usable(ctx context.Context, g *generation) (*generation, error) {
	switch {
	case ctx.Err() != nil:
		return g, context.Cause(ctx)
	case g == nil:
	case g.alive() || g.revive(ctx):
		return g, nil
	default:
		g.abort(errAbandoned)
	}
	return p.dialer.open(ctx)
}

// release gives a generation back, or ends one that is in doubt.
func (p *pool) release(g *generation, healthy bool) {
	if !healthy || !g.stands() {
		g.abort(errAbandoned)
		g = nil
	}
	p.put(g)
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
