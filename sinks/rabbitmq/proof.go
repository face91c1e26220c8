package rabbitmq

import (
	"sync"
	"time"

	"github.com/jobrelay/relay/sinks"
)

const (
	proofAge  = time.Minute // how long the sink trusts what it has seen
	smallBody = 64 << 10    // bodies up to here are sent without proof that the broker takes their size
	manyNames = 10_000      // names that are remembered
)

// proof is what the sink has seen the broker take. RabbitMQ answers a publish that it can't take by closing the
// channel, later, and forgets to confirm what it had taken on it before: one bad message puts all its neighbours in
// doubt. So what hasn't been proved goes alone: the first message to an exchange, anything to an address that was
// refused, a larger body than any before. Alone, the refusal is its own, and nobody else's.
type proof struct {
	hearing sinks.Hearing

	mu        sync.Mutex
	exchanges map[string]time.Time // which answered, and when last
	suspects  map[address]struct{} // addresses that were refused and haven't taken anything since
	size      int                  // the largest body taken
	limit     int                  // the size that the broker gave as its limit
	limited   time.Time            // when it did
}

func newProof() *proof {
	return &proof{exchanges: map[string]time.Time{}, suspects: map[address]struct{}{}, size: smallBody}
}

// lacks says whether a message of this size for this address must go alone.
func (p *proof) lacks(a address, size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, suspect := p.suspects[a]
	return suspect || size > p.size || time.Since(p.exchanges[a.exchange]) > proofAge
}

// answered notes that the broker took a message, or returned or refused it without closing the channel.
func (p *proof) answered(a address, size int) {
	p.hearing.Heard()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.exchanges) >= manyNames {
		clear(p.exchanges)
	}
	p.exchanges[a.exchange] = time.Now()
	delete(p.suspects, a)
	p.size = max(p.size, size)
}

// doubted forgets an exchange: the broker closed a channel that had messages to it in flight.
func (p *proof) doubted(exchange string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.exchanges, exchange)
}

// refused notes that the broker closed the channel over a message to this address.
func (p *proof) refused(a address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.exchanges, a.exchange)
	if len(p.suspects) >= manyNames {
		clear(p.suspects)
	}
	p.suspects[a] = struct{}{}
}

// tooLarge notes the limit that the broker named.
func (p *proof) tooLarge(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.limited, p.size = limit, time.Now(), min(p.size, limit)
}

// most is the largest body that may be sent, 0 when that isn't known. What the broker said is believed for a while
// only: limits are raised, and a message over the limit is lost.
func (p *proof) most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.limited) > proofAge {
		return 0
	}
	return p.limit
}
