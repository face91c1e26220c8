package kafka

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

// undecided is no outcome: a result that nobody has written.
const undecided = sinks.Outcome(99)

// answers are what a broker can say of a piece: success, every code with a ruling, and some without.
var answers = func() []int16 {
	codes := []int16{0, 0, -1, 999, int16(kafkago.MessageSizeTooLarge), int16(kafkago.InvalidRecord)}
	for code := range rulings {
		codes = append(codes, int16(code))
	}
	slices.Sort(codes)
	return codes
}()

// player is a broker that answers as its bytes say, and notes what it appended. When they are used up it takes everything.
type player struct {
	say      []byte
	appended []int // in order
	maybe    map[int]bool
}

func (b *player) next() byte {
	if len(b.say) == 0 {
		return 0
	}
	c := b.say[0]
	b.say = b.say[1:]
	return c
}

// answer decides on a piece.
func (b *player) answer(piece []int) (answer, bool) {
	c := b.next()
	if c == 255 { // the reply doesn't name the partition
		for _, i := range piece {
			b.maybe[i] = true
		}
		return answer{}, false
	}
	a := answer{code: answers[int(c)%len(answers)]}
	if c < 64 {
		a.code = 0
	}
	r, known := rulings[kafkago.Error(a.code)]
	switch {
	case a.code == 0:
		b.appended = append(b.appended, piece...)
	case !known || r.outcome == sinks.Unknown, r.outcome == sinks.Unavailable && c%2 == 1:
		a.landed = c%2 == 1
		for _, i := range piece {
			b.maybe[i] = true
		}
	case r.narrow:
		for range b.next() % 4 {
			a.records = append(a.records, recordError{int(int8(b.next())), "why"})
		}
	}
	return a, true
}

// FuzzPieces cuts a batch into pieces, narrows them down by whatever a broker says, and sees that every message gets
// exactly one result, that it is true, and that within an ordered key nothing overtakes.
func FuzzPieces(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint16(0))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), []byte{70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70}, uint16(3000))
	f.Add(bytes.Repeat([]byte{4, 5, 12, 13, 255}, 40), []byte{0, 90, 2, 1, 200, 0, 255, 0, 77, 3, 0, 1, 2}, uint16(900))
	f.Add(bytes.Repeat([]byte{4, 20, 36, 252}, 30), bytes.Repeat([]byte{66, 1, 129, 67, 2, 0, 0, 68}, 20), uint16(1))
	for i := range answers {
		f.Add(bytes.Repeat([]byte{4, 5, 6, 128}, 4), []byte{byte(i + 2*len(answers)), 2, 1, 3, 0, byte(i + 2*len(answers))}, uint16(1500))
	}
	f.Fuzz(func(t *testing.T, shape, say []byte, most uint16) {
		if len(shape) > 300 {
			shape = shape[:300]
		}
		p := newPlayed(shape, int(most))
		broker := &player{say: say, maybe: map[int]bool{}}
		p.plan()
		for round := range p.rounds {
			p.enqueue(round)
			whole(t, p, round)
			for _, q := range p.order {
				for steps := 0; len(q.pieces) > 0 && q.moved == nil; steps++ {
					if steps > 20*len(shape)+20 {
						t.Fatalf("a queue of %d messages isn't decided after %d answers", len(q.index), steps)
					}
					a, ok := broker.answer(q.first())
					p.rule(q, a, ok)
					whole(t, p, round)
				}
				if q.moved != nil {
					p.stop(q, *q.moved)
				}
			}
			p.closeRound(round)
		}
		p.doubt()
		truthful(t, p, broker)
		orderly(t, p, broker)
	})
}

// newPlayed makes a publication without a network: what the bytes of shape say, to two topics of two partitions each.
func newPlayed(shape []byte, most int) *publication {
	s := newSink(&cluster{}, partitioners["murmur2"], nil, -1, nil)
	p := &publication{sink: s, batch: make([]sinks.Message, len(shape)), results: make([]sinks.Result, len(shape)), landed: make([]bool, len(shape)), targets: map[string]*target{}}
	p.all(sinks.Result{Outcome: undecided})
	for _, name := range []string{"a", "b"} {
		l := &layout{ids: []int{0, 1}, leaders: map[int]int32{0: 1, 1: 1}}
		p.targets[name] = &target{described: described{&topic{name: name, layout: l}, l}, queues: map[int]*queue{}}
		p.targets[name].topic.limit.bytes, p.targets[name].topic.limit.asked = most, time.Now()
	}
	for i, c := range shape {
		m := &p.batch[i]
		*m = sinks.Message{ID: fmt.Sprint("shop/", i), Address: "a", Kind: "k", Attempt: 1, Payload: make([]byte, 40*int(c>>5)), Ordered: c&8 == 0}
		if c&16 != 0 {
			m.Address = "b"
		}
		if key := fmt.Sprint(c & 3); c&4 != 0 {
			m.Key = &key
		}
	}
	return p
}

// whole fails unless every message of the round is either decided or waits in one place.
func whole(t *testing.T, p *publication, round int) {
	t.Helper()
	waits := make([]int, len(p.batch))
	for _, q := range p.order {
		for _, piece := range q.pieces {
			if len(piece) == 0 {
				t.Fatalf("%v has an empty piece", q)
			}
			for _, i := range piece {
				waits[i]++
			}
		}
	}
	for i, r := range p.results {
		if n := waits[i]; n > 1 || p.in(round, i) && (n == 1) != (r.Outcome == undecided) || !p.in(round, i) && n != 0 {
			t.Fatalf("round %d: message %d waits in %d places, its result is %v", round, i, n, r)
		}
	}
}

// truthful fails unless each result is what the broker did.
func truthful(t *testing.T, p *publication, b *player) {
	t.Helper()
	times := make([]int, len(p.batch))
	for _, i := range b.appended {
		times[i]++
	}
	for i, r := range p.results {
		if (r.Outcome == sinks.Accepted) != (times[i] == 1) || times[i] > 1 || (r.Err == nil) != (r.Outcome == sinks.Accepted) {
			t.Errorf("message %d was appended %d times: %v (%v)", i, times[i], r.Outcome, r.Err)
		}
		if r.Outcome == undecided || b.maybe[i] != (r.Outcome == sinks.Unknown) {
			t.Errorf("message %d: %v (%v), the broker has it maybe: %v", i, r.Outcome, r.Err, b.maybe[i])
		}
	}
}

// orderly fails when a message was appended before one that its key had earlier, or after one that wasn't accepted.
func orderly(t *testing.T, p *publication, b *player) {
	t.Helper()
	last := map[string]int{}
	for _, i := range b.appended {
		m := &p.batch[i]
		if !m.Ordered || m.Key == nil {
			continue
		}
		for j := last[*m.Key]; j < i; j++ {
			if e := &p.batch[j]; e.Ordered && e.Key != nil && *e.Key == *m.Key && p.results[j].Outcome != sinks.Accepted {
				t.Errorf("message %d was appended, and %d before it of the same key was %v", i, j, p.results[j].Outcome)
			}
		}
		if i < last[*m.Key] {
			t.Errorf("message %d was appended after %d of the same key", i, last[*m.Key])
		}
		last[*m.Key] = i
	}
}

// FuzzFrame reads any bytes as one frame of a reply, and what it has as the versions that a broker speaks.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0a\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00"), int32(7))
	f.Add([]byte("\x00\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x03\x00\x08"), int32(1))
	f.Add([]byte("\x15\x03\x03\x00\x02\x02\x0a\x00"), int32(1))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), int32(0))
	f.Add([]byte("\x7f\xff\xff\xff\x00\x00\x00\x01"), int32(1))
	f.Add([]byte("\x00\x00\x00\x03\x00\x00\x00\x01"), int32(1))
	f.Add([]byte{}, int32(0))
	f.Fuzz(func(t *testing.T, raw []byte, correlation int32) {
		c := &conn{in: bufio.NewReader(bytes.NewReader(raw))}
		frame, err := c.read(correlation)
		if err != nil {
			if frame != nil || !errors.Is(err, errGarbled) && !errors.Is(err, errCut) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errExpectsTLS) {
				t.Errorf("got %d bytes and %v", len(frame), err)
			}
			return
		}
		if !bytes.HasPrefix(raw, frame) || len(frame) < 8 {
			t.Errorf("got %x of %x", frame, raw)
		}
		if ranges, _, err := parseVersions(frame[8:]); err == nil && len(ranges)*6 > len(frame) {
			t.Errorf("%d versions in %d bytes", len(ranges), len(frame))
		}
		for version := int16(produceMinVersion); version <= produceMaxVersion; version++ {
			if reply, err := parseReply(frame[8:], version); err == nil && len(reply.answers)*20 > len(frame) {
				t.Errorf("%d answers in %d bytes", len(reply.answers), len(frame))
			}
		}
	})
}
