package claim

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Queue is one relay process's view of the due jobs of the kinds that it serves. Its methods may be called at once.
type Queue struct {
	s       *Store
	serves  func(kind string) bool
	shareOf func(kind string) int
	orderOf func(kind string) Order

	sweeping sync.Mutex // one sweep at a time; guards what only sweeps use
	sweeper  sweeper
	refused  refusals // rows that Postgres refuses, and which are left out
	cleaning sync.Mutex
	cleaner  cleaner

	mu         sync.Mutex // guards what follows, never held during a statement
	kinds      map[string]*kind
	list       []*kind       // sorted by name
	discovered bool          // pairs and shares were read
	held       bool          // somebody holds an old snapshot: what is drained can't be removed
	patience   time.Duration // with a claim that looks far below the clock
}

// kind is what is known of one kind.
type kind struct {
	name  string
	share int     // as last read, -1 before
	size  float64 // bytes of a job, a moving average
	pairs []*pair // by priority, the largest first
	order Order
	keys  keys // with order.Keys
}

// pair is one (kind, priority) and how far down it was walked.
type pair struct {
	Pair
	floor   point     // claims look above it
	moved   int       // counts what let claims look again, so that one under way doesn't raise the floor past it
	hot     bool      // the last claim took as much as it was allowed to
	lacking string    // open destinations as of the last claim, as an array literal
	asked   time.Time // when a claim last looked
	seen    time.Time // when the skip scan last found it
	pinned  bool      // known from the routes: never forgotten
	keyless bool      // only its jobs without a key are claimed by this walk; the others keep the order of their keys
	taken   int       // claimed since the last sweep
	rate    float64   // claimed per second
	strip   strip

	stretches []stretch // below the floor, where claims look as well, in order and apart
	fruitless time.Time // when a claim last got nothing from a stretch
}

// Queue returns a view of the jobs whose kinds serves accepts. Kinds that it refuses are somebody else's: they are
// never claimed, reaped or cleaned up. serves must be quick and give one answer per kind.
func (s *Store) Queue(serves func(kind string) bool) *Queue {
	return &Queue{
		s: s, serves: serves, kinds: map[string]*kind{}, patience: deepMost,
		shareOf: func(string) int { return 100 },
		orderOf: func(string) Order { return Order{} },
	}
}

// ShareOf sets which share, 0 to 100, a kind gets in relay_kinds when it has no row yet; 100 without it. Call it before
// the first claim.
func (q *Queue) ShareOf(share func(kind string) int) { q.shareOf = share }

// OrderOf says which kinds keep the order of their keys; none without it. Call it before the first claim.
func (q *Queue) OrderOf(order func(kind string) Order) { q.orderOf = order }

// Expect names kinds that will come: their first job needn't wait until a sweep has found the kind. Call it before the
// first claim.
func (q *Queue) Expect(kinds ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range kinds {
		if q.serves(k) {
			q.know(Pair{Kind: k}).pinned = true
		}
	}
}

// Reset forgets the floors of the pairs for which match is true: after a destination has come back.
func (q *Queue) Reset(match func(kind string) bool) {
	q.mu.Lock()
	names := make([]string, len(q.list))
	for i, k := range q.list {
		names[i] = k.name
	}
	q.mu.Unlock()
	names = slices.DeleteFunc(names, func(n string) bool { return !match(n) })
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range names {
		if k := q.kinds[n]; k != nil {
			k.reset()
		}
	}
}

func (k *kind) reset() {
	for _, p := range k.pairs {
		p.reset()
	}
}

// reset makes claims look at everything again. Below the floor of a keyless pair only sweeps look: what has a key lies
// there in any number, and a claim would walk over all of it.
func (p *pair) reset() {
	if p.keyless {
		return
	}
	p.moved++
	p.floor, p.stretches = bottom, nil
}

// raise moves the floor up, unless something lowered it while the claim was under way.
func (p *pair) raise(to point, moved int) {
	if p.moved == moved && p.floor.less(to) {
		p.floor = to
	}
}

// rewind lowers a floor that lies ahead of the database's clock: after a failover that may be another one.
func (p *pair) rewind(horizon point) {
	if horizon.at+lagMost.Microseconds() < p.floor.at {
		p.moved++
		p.floor = horizon
	}
}

// know returns the pair, and adds it where it is new. Called under mu.
func (q *Queue) know(at Pair) *pair {
	k := q.kinds[at.Kind]
	if k == nil {
		k = &kind{name: at.Kind, share: -1, size: assumedSize, order: q.orderOf(at.Kind)}
		q.kinds[at.Kind] = k
		i, _ := slices.BinarySearchFunc(q.list, at.Kind, func(k *kind, name string) int { return cmp.Compare(k.name, name) })
		q.list = slices.Insert(q.list, i, k)
	}
	i, found := slices.BinarySearchFunc(k.pairs, at.Priority, func(p *pair, priority int16) int { return cmp.Compare(priority, p.Priority) })
	if !found {
		p := &pair{Pair: at, floor: bottom, strip: strip{within: bottom}, keyless: k.order.Keys}
		if p.keyless {
			p.floor = pointAt(time.Now()).back(lagMost)
		}
		k.pairs = slices.Insert(k.pairs, i, p)
	}
	return k.pairs[i]
}

// find returns the pair if it is known. Called under mu.
func (q *Queue) find(at Pair) *pair {
	k := q.kinds[at.Kind]
	if k == nil {
		return nil
	}
	for _, p := range k.pairs {
		if p.Priority == at.Priority {
			return p
		}
	}
	return nil
}

// all lists the pairs. Called under mu.
func (q *Queue) all() []*pair {
	var out []*pair
	for _, k := range q.list {
		out = append(out, k.pairs...)
	}
	return out
}

// lag is how far a floor stays behind the clock: run_at is the start of the enqueuing transaction, so jobs still arrive
// there. Beside a held snapshot what is drained in that window stays in the way of every claim, so it shrinks with the
// rate; then what commits later than that waits for a sweep. Called under mu.
func (q *Queue) lag(p *pair) time.Duration {
	if !q.held || p.rate <= 0 {
		return lagMost
	}
	return min(max(time.Duration(lagEntries/p.rate*float64(time.Second)), lagLeast), lagMost)
}

const (
	lagMost    = 2 * time.Second
	lagLeast   = 100 * time.Millisecond
	lagEntries = 5000
	// deepMost bounds a claim that looks far below the clock, at first.
	deepMost = 2 * time.Second
	// assumedSize is taken for a job's bytes before one of its kind was seen.
	assumedSize = 1 << 10
)
