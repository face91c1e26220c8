package kafka

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/jobrelay/relay/sinks"
)

// fate is what an attempt means for the stamp that it was made with.
type fate uint8

const (
	untouched fate = iota // not sent, or not appended: the next batch may have the stamp
	appended              // used up
	unsure                // used up or not, or it will be
	outOfStep             // not appended, and no later number of this epoch will be
	fenced                // not appended, and no batch of this producer id will be
)

// number takes a sequence for each queue whose first piece has ordered messages, and returns the queues that can be sent
// now, and the first of those that must wait for a sequence that another call uses.
func (p *publication) number(queues []*queue) (ready []*queue, busy *queue) {
	if p.links == nil {
		return queues, nil
	}
	ready = make([]*queue, 0, len(queues))
	for _, q := range queues {
		switch err := p.take(q, false); {
		case err == nil:
			ready = append(ready, q)
		case !errors.Is(err, errBusy):
			p.withhold(q, err)
		case busy == nil:
			busy = q
		}
	}
	return ready, busy
}

// await waits for the sequence of a queue, for the request that comes next. Whoever waits holds no other, and no turn at
// the broker: the call that uses the sequence may need that one.
func (p *publication) await(q *queue) {
	if err := p.take(q, true); err != nil {
		p.withhold(q, err)
	}
}

// take gives the first piece of a queue a sequence with its turn, if it needs one and hasn't got it.
func (p *publication) take(q *queue, wait bool) error {
	if q.sequence != nil || !slices.ContainsFunc(q.first(), func(i int) bool { return p.runOf(i) != nil }) {
		return nil
	}
	at := place{q.target.topic.name, int32(q.partition)}
	s := p.pinned(q, p.sequencer.inDoubt(at, func() []uint64 { return p.runs(q.first()) }))
	switch {
	case s == nil:
		s = p.sequencer.free(at)
	case s.try():
	case !wait:
		return errBusy
	default:
		if err := s.wait(p.ctx, p.start); err != nil {
			return fmt.Errorf("%w in partition %d of topic %s: %w", errNoTurn, q.partition, at.topic, err)
		}
	}
	q.sequence, q.numbered = s, q.first()
	err := p.sequencer.ready(p.ctx, s, func() [sha256.Size]byte { return digest(p.batch, q.numbered) })
	if err != nil {
		p.conclude(q, untouched)
	}
	return err
}

// runs returns the hashes of a piece's runs, again and again as they come.
func (p *publication) runs(piece []int) []uint64 {
	var hashes []uint64
	for _, i := range piece {
		if r := p.runOf(i); r != nil {
			hashes = append(hashes, r.hash)
		}
	}
	return hashes
}

// pinned returns the sequence that the first piece must be sent with because an earlier attempt of a run in it may land
// yet, nil if any will do. What needs another one is cut off and comes next.
func (p *publication) pinned(q *queue, doubts map[uint64]*sequence) *sequence {
	if len(doubts) == 0 {
		return nil
	}
	var first *sequence
	var here, later []int
	for _, i := range q.first() {
		var s *sequence
		if r := p.runOf(i); r != nil {
			s = doubts[r.hash]
		}
		if first == nil {
			first = s
		}
		if s == nil || s == first {
			here = append(here, i)
		} else {
			later = append(later, i)
		}
	}
	q.replace(here, later)
	return first
}

// withhold gives up the ordered messages of a queue. The others don't need what these lack.
func (p *publication) withhold(q *queue, err error) {
	r := p.unreached(err)
	var refused producerRefused
	switch {
	case errors.Is(err, errNoTurn):
		r.Scope = sinks.ScopeMessage
	case errors.As(err, &refused), errors.Is(err, errNoAPI):
		r.Scope = sinks.ScopeAddress
	}
	q.filter(func(i int) bool {
		if p.runOf(i) == nil {
			return true
		}
		p.results[i] = r
		return false
	})
}

// conclude notes what became of the piece that got a sequence, as far as that is concerned, and gives the turn back.
func (p *publication) conclude(q *queue, f fate) {
	s := q.sequence
	if s == nil {
		return
	}
	q.sequence = nil
	defer s.release()
	switch f {
	case appended:
		p.sequencer.appended(s, len(q.numbered))
	case unsure:
		p.sequencer.unsure(s, digest(p.batch, q.numbered), p.runs(q.numbered))
	case outOfStep:
		s.raise()
	case fenced:
		s.retire()
		p.sequencer.settled(s)
	}
}

// letGo gives back the turns that a panic has left.
func (p *publication) letGo(queues []*queue) {
	for _, q := range queues {
		p.conclude(q, unsure)
	}
}

// stamp is that of the first piece.
func (q *queue) stamp() stamp {
	if q.sequence == nil {
		return unstamped
	}
	return q.sequence.next
}

// digest tells batches apart: what is sent of each message, but the number of its attempt and the time.
func digest(batch []sinks.Message, index []int) [sha256.Size]byte {
	var b []byte
	add := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	h := sha256.New()
	for _, i := range index {
		m := &batch[i]
		b = binary.AppendVarint(b[:0], m.Replay)
		add(m.ID)
		add(m.Kind)
		if m.Key == nil {
			b = append(b, 0)
		} else {
			b = append(b, 1)
			add(*m.Key)
		}
		b = binary.AppendUvarint(b, uint64(len(m.Headers)))
		for _, header := range m.Headers {
			add(header.Name)
			add(header.Text)
		}
		_, _ = h.Write(binary.AppendUvarint(b, uint64(len(m.Payload))))
		_, _ = h.Write(m.Payload)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
