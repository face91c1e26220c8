package kafka

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"time"
)

// What makes ordered record batches safe against an attempt that lands late: each has a stamp, and a broker takes the
// batches of one producer id in one partition only in the order of their epochs and numbers. docs/decisions/0030 has
// the reasons for all that follows.

const (
	// sequencesKept is how many sequences a partition has before one whose last batch is in doubt is used for others.
	sequencesKept = 8
	// Long before numbers or epochs run out a sequence goes on with another producer id.
	numbersUsed = 1 << 30
	epochsUsed  = 1 << 14
	// placesKept is how many partitions are remembered without being used for forgetAfter: addresses may come from job
	// data.
	placesKept  = 10_000
	forgetAfter = 15 * time.Minute
)

// stamp is who sends a batch and the number of its first record.
type stamp struct {
	producer int64
	epoch    int16
	first    int32
}

// unstamped is that of batches whose order doesn't count.
var unstamped = stamp{-1, -1, -1}

// sequencer has the sequences of all partitions.
type sequencer struct {
	cluster *cluster
	seed    maphash.Seed
	asking  chan struct{} // one question for a producer id at a time

	mu      sync.Mutex
	places  map[place]*numbering
	ids     []stamp // by slot: the first stamp of the producer id in use, if any
	failure error   // of the last question
	failed  time.Time
}

// numbering is one partition: a sequence for each batch that is on its way there at once.
type numbering struct {
	sequences []*sequence
	doubts    map[uint64]*sequence // by run: its last attempt is Unknown, and was made with this sequence
	used      time.Time
}

// sequence numbers batches of one producer id in one partition. The fields but the last belong to who has its turn.
type sequence struct {
	of      *numbering
	slot    int
	turn    chan struct{}      // full while somebody has it
	next    stamp              // of the next batch; without a producer when it needs a new one
	spent   int64              // producer id that it needs another one for
	pending *[sha256.Size]byte // what the batch was that may have used the next stamp already

	doubts int // how many of the partition's are its own; under the sequencer's lock
}

func newSequencer(c *cluster) *sequencer {
	return &sequencer{cluster: c, seed: maphash.MakeSeed(), asking: make(chan struct{}, 1), places: map[place]*numbering{}}
}

// hash tells runs apart. That two are taken for one does no harm: then they wait for each other.
func (s *sequencer) hash(kind, key string) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	_, _ = h.WriteString(kind)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	return h.Sum64()
}

// inDoubt returns the sequences with which runs were sent whose fate is unknown, nil when there are none.
func (s *sequencer) inDoubt(at place, runs func() []uint64) map[uint64]*sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.places[at]
	if n == nil || len(n.doubts) == 0 {
		return nil
	}
	n.used = time.Now()
	found := map[uint64]*sequence{}
	for _, r := range runs() {
		if q := n.doubts[r]; q != nil {
			found[r] = q
		}
	}
	return found
}

// free returns a sequence of a partition with its turn.
func (s *sequencer) free(at place) *sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.places[at]
	if n == nil {
		s.forget(time.Now())
		n = &numbering{doubts: map[uint64]*sequence{}}
		s.places[at] = n
	}
	n.used = time.Now()
	if q := n.idle(func(q *sequence) bool { return q.doubts == 0 }); q != nil {
		return q
	}
	if len(n.sequences) >= sequencesKept {
		if q := n.idle(func(q *sequence) bool { return q.doubts > 0 }); q != nil {
			return q
		}
	}
	q := &sequence{of: n, slot: len(n.sequences), turn: make(chan struct{}, 1), next: unstamped, spent: -1}
	q.turn <- struct{}{}
	n.sequences = append(n.sequences, q)
	return q
}

// idle takes the turn of a sequence that nobody uses, nil when there is none of that kind.
func (n *numbering) idle(kind func(*sequence) bool) *sequence {
	for _, q := range n.sequences {
		if kind(q) && q.try() {
			return q
		}
	}
	return nil
}

func (q *sequence) try() bool {
	select {
	case q.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait waits for a sequence's turn, as pool.acquire does for a broker's.
func (q *sequence) wait(ctx context.Context, start time.Time) error {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	err := inTime(ctx, start)
	if err != nil {
		q.release()
	}
	return err
}

// release gives the turn back.
func (q *sequence) release() { <-q.turn }

// ready gives a sequence the stamp for a batch. When the one before may have been appended or not, the very same batch
// gets the same stamp, so that the broker knows it again; any other gets the next epoch, from which on the broker
// refuses the one before.
func (s *sequencer) ready(ctx context.Context, q *sequence, digest func() [sha256.Size]byte) error {
	if q.pending != nil && *q.pending != digest() {
		q.raise()
	}
	if q.next.producer >= 0 {
		return nil
	}
	first, err := s.id(ctx, q.slot, q.spent)
	if err != nil {
		return err
	}
	q.next, q.spent = first, first.producer
	return nil
}

// raise goes on in the next epoch.
func (q *sequence) raise() {
	if q.next.epoch == math.MaxInt16 { // after as many attempts without a word in between; nothing is left to raise
		q.retire()
		return
	}
	q.pending = nil
	q.next.epoch, q.next.first = q.next.epoch+1, 0
}

// retire goes on with another producer id.
func (q *sequence) retire() { q.next, q.pending = unstamped, nil }

// appended notes that a batch of so many records was taken.
func (s *sequencer) appended(q *sequence, records int) {
	q.pending = nil
	if q.next.first += int32(records); q.next.first > numbersUsed || q.next.epoch > epochsUsed {
		q.retire()
	}
	s.settled(q)
}

// settled ends the doubts about a sequence: the broker takes nothing older of it any more.
func (s *sequencer) settled(q *sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.doubts > 0 {
		maps.DeleteFunc(q.of.doubts, func(_ uint64, of *sequence) bool { return of == q })
		q.doubts = 0
	}
}

// unsure notes that a batch of these runs may have been taken, or may be yet.
func (s *sequencer) unsure(q *sequence, digest [sha256.Size]byte, runs []uint64) {
	q.pending = &digest
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		if old := q.of.doubts[r]; old != q {
			if old != nil {
				old.doubts--
			}
			q.of.doubts[r] = q
			q.doubts++
		}
	}
}

// forget keeps the memory bounded. A partition that was forgotten begins with producer ids that it hasn't seen, or a
// broker could take new batches for old ones.
func (s *sequencer) forget(now time.Time) {
	if len(s.places) < placesKept {
		return
	}
	maps.DeleteFunc(s.places, func(_ place, n *numbering) bool { return now.Sub(n.used) > forgetAfter })
	s.ids = nil
}
