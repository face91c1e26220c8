package claim

import (
	"math"
	"slices"
	"time"
)

// stretch is a part of a pair below its floor in which there are due jobs: from, exclusive, to. A floor that is lowered to
// them would lead the next claim over all that was drained since.
type stretch struct{ from, to point }

const (
	// stretchesMost bounds how many a pair has; then the two that are closest become one.
	stretchesMost = 16
	// fruitlessRest is how long sweeps don't reopen a pair after a claim that got nothing from what they had found: its
	// rows are locked. That is just less than sweeps take to come by.
	fruitlessRest = 900 * time.Millisecond
)

// parts are what a claim looks at of the pair, the oldest first.
func (p *pair) parts() []stretch {
	if p.floor == bottom || len(p.stretches) == 0 {
		return []stretch{{p.floor, top}}
	}
	return append(slices.Clone(p.stretches), stretch{p.floor, top})
}

// deep reports that a walk of the pair may meet all that was drained and can't be removed.
func (p *pair) deep(now time.Time) bool {
	return p.floor == bottom || len(p.stretches) > 0 || now.Sub(p.asked) > idle
}

// reopen makes claims look at what lies above from, up to to's moment; false when they do already.
func (p *pair) reopen(from, to point) bool {
	if p.keyless {
		return false
	}
	p.moved++
	add := stretch{from, point{to.at, math.MaxInt64}}
	if !from.less(p.floor) || slices.ContainsFunc(p.stretches, func(s stretch) bool {
		return !from.less(s.from) && !s.to.less(add.to)
	}) {
		return false
	}
	if !add.to.less(p.floor) { // right below it
		p.floor = from
		for n := len(p.stretches); n > 0 && !p.stretches[n-1].to.less(p.floor); n-- {
			p.floor = lower(p.floor, p.stretches[n-1].from)
			p.stretches = p.stretches[:n-1]
		}
		return true
	}
	i, _ := slices.BinarySearchFunc(p.stretches, from, func(s stretch, from point) int {
		if s.from.less(from) {
			return -1
		}
		return 1
	})
	p.stretches = slices.Insert(p.stretches, i, add)
	p.join()
	return true
}

// join makes one of those that overlap, and of the closest when there are too many.
func (p *pair) join() {
	for i := 1; i < len(p.stretches); {
		if p.stretches[i-1].to.less(p.stretches[i].from) {
			i++
		} else {
			p.merge(i)
		}
	}
	if len(p.stretches) <= stretchesMost {
		return
	}
	closest, least := 1, int64(math.MaxInt64)
	for i := 1; i < len(p.stretches); i++ {
		if apart := p.stretches[i].from.at - p.stretches[i-1].to.at; apart >= 0 && apart < least {
			closest, least = i, apart
		}
	}
	p.merge(closest)
}

// merge makes one of a stretch and the one below.
func (p *pair) merge(i int) {
	below := &p.stretches[i-1]
	if below.to.less(p.stretches[i].to) {
		below.to = p.stretches[i].to
	}
	p.stretches = slices.Delete(p.stretches, i, i+1)
}

// passed moves on after a claim that looked at a branch up to to, unless something made claims look again meanwhile.
func (p *pair) passed(b branch, to point) {
	if b.to == top {
		p.raise(to, b.moved)
		return
	}
	i := slices.IndexFunc(p.stretches, func(s stretch) bool { return s.from == b.floor })
	if i < 0 || p.moved != b.moved || to.less(b.floor) {
		return
	}
	if to.less(p.stretches[i].to) {
		p.stretches[i].from = to
	} else {
		p.stretches = slices.Delete(p.stretches, i, i+1)
	}
}
