package kafka

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

// stamped sends messages to partition 0 with a stamp and returns the broker's code and the offset that it gave them.
func stamped(t *testing.T, s *sink, batch []sinks.Message, by stamp) (kafkago.Error, int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := s.cluster.pool(s.cluster.bootstrap[0])
	c, err := p.get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.put(c)
	frame, correlation := stampedFrame(t, s, c, batch, by)
	reply, _, err := c.exchange(ctx, frame, correlation)
	if err != nil {
		t.Fatal(err)
	}
	return answered(t, reply, c.version(produceKey), batch[0].Address)
}

func stampedFrame(t *testing.T, s *sink, c *conn, batch []sinks.Message, by stamp) ([]byte, int32) {
	t.Helper()
	e := s.encoders.New().(*encoder)
	correlation := c.next()
	be := binary.BigEndian
	f := appendProduce(nil, c.version(produceKey), correlation, s.acks, 10*time.Second, 1)
	f = appendName(f, batch[0].Address)
	f = be.AppendUint32(f, 1)
	f = append(f, make([]byte, 8)...) // partition, size
	start := len(f)
	f, err := e.appendBatch(f, batch, all(len(batch)), time.Now(), by)
	if err != nil {
		t.Fatal(err)
	}
	be.PutUint32(f[start-4:], uint32(len(f)-start))
	endFrame(f)
	return f, correlation
}

// answered reads a reply for partition 0 of one topic.
func answered(t *testing.T, reply []byte, version int16, topic string) (kafkago.Error, int64) {
	t.Helper()
	parsed, err := parseReply(reply[8:], version)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := parsed.answers[place{topic, 0}]
	if !ok {
		t.Fatalf("no word on partition 0 of %s", topic)
	}
	code := kafkago.Error(a.code)
	if appended := code == 0 || code == kafkago.DuplicateSequenceNumber; a.landed && !appended {
		t.Errorf("a batch that was refused with %d has offsets", a.code)
	}
	offset := int64(binary.BigEndian.Uint64(reply[8+4+2+len(topic)+4+4+2:]))
	return code, offset
}

// TestWhatBrokersDoWithStamps holds the facts that sequence.go rests on, on the real broker and on the fake.
func TestWhatBrokersDoWithStamps(t *testing.T) {
	t.Parallel()
	realAndFake(t, func(t *testing.T, broker string) {
		topic := newTopic(t, broker, 1)
		s := open(t, broker)
		one, err := s.cluster.newProducer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.cluster.newProducer(t.Context())
		if err != nil || other.producer == one.producer || one.epoch != 0 {
			t.Fatalf("producers %+v and %+v (%v)", one, other, err)
		}
		at := func(by stamp, epoch int16, first int32) stamp { return stamp{by.producer, epoch, first} }
		for _, step := range []struct {
			what   string
			by     stamp
			n      int
			code   kafkago.Error
			offset int64
		}{
			{"a new producer begins at 0", at(one, 0, 0), 2, 0, 0},
			{"the very same batch again is known again", at(one, 0, 0), 2, 0, 0},
			{"a part of it isn't", at(one, 0, 0), 1, kafkago.OutOfOrderSequenceNumber, 0},
			{"a gap is refused", at(one, 0, 3), 1, kafkago.OutOfOrderSequenceNumber, 0},
			{"numbers go on, whatever the size was refused with", at(one, 0, 2), 1, 0, 2},
			{"another producer in the same partition", at(other, 0, 0), 1, 0, 3},
			{"which changes nothing for the first", at(one, 0, 3), 1, 0, 4},
			{"a later epoch must begin at 0", at(one, 1, 4), 1, kafkago.OutOfOrderSequenceNumber, 0},
			{"a later epoch needs nobody's leave", at(one, 1, 0), 1, 0, 5},
			{"what comes late is refused: the next number of the epoch before", at(one, 0, 4), 1, kafkago.InvalidProducerEpoch, 0},
			{"and a batch of the epoch before that was appended", at(one, 0, 3), 1, kafkago.InvalidProducerEpoch, 0},
			{"an epoch may be left out", at(one, 7, 0), 3, 0, 6},
			{"without a stamp", unstamped, 1, 0, 9},
			{"numbers go on behind it", at(one, 7, 3), 1, 0, 10},
		} {
			code, offset := stamped(t, s, messages(topic, step.n), step.by)
			if code != step.code || code == 0 && offset != step.offset {
				t.Errorf("%s: got %d (%v) at %d, want %d at %d", step.what, int(code), code, offset, int(step.code), step.offset)
			}
		}
		read(t, broker, topic, 11)

		empty := newTopic(t, broker, 1)
		code, _ := stamped(t, s, messages(empty, 1), at(one, 3, 5))
		t.Log("first number above 0 in a new partition:", int(code))
		if code != 0 && code != kafkago.OutOfOrderSequenceNumber {
			t.Errorf("a first number above 0 in a new partition: %d", int(code))
		}
		if code, _ := stamped(t, s, messages(empty, 1), at(one, 9, 0)); code != 0 {
			t.Errorf("any epoch from 0 in a partition that doesn't know the producer: %d", int(code))
		}
	})
}
