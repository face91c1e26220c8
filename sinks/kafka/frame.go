package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Versions of the produce API whose request has the form written here: all that brokers from 0.11 to 4.x share.
const (
	produceKey        = 0
	produceMinVersion = 3
	produceMaxVersion = 8
	clientID          = "relay"
)

// appendProduce appends the head of a produce request up to the number of topics. Its size is written by endFrame.
func appendProduce(dst []byte, version int16, correlation int32, acks int16, wait time.Duration, topics int) []byte {
	be := binary.BigEndian
	dst = append(dst, 0, 0, 0, 0)
	dst = be.AppendUint16(dst, produceKey)
	dst = be.AppendUint16(dst, uint16(version))
	dst = be.AppendUint32(dst, uint32(correlation))
	dst = appendName(dst, clientID)
	dst = append(dst, 0xff, 0xff) // no transaction
	dst = be.AppendUint16(dst, uint16(acks))
	dst = be.AppendUint32(dst, uint32(wait.Milliseconds()))
	return be.AppendUint32(dst, uint32(topics))
}

// endFrame writes the size in front of a finished frame.
func endFrame(frame []byte) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
}

func appendName(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// place is one partition of one topic.
type place struct {
	topic     string
	partition int32
}

// answer is what a produce reply says of one place.
type answer struct {
	code    int16
	message string
	records []recordError
	landed  bool // the leader has appended the batch, whatever the code says of its replicas or its lead
}

// recordError names one record of a batch that was refused as a whole.
type recordError struct {
	index   int
	message string
}

// produceReply is a whole reply.
type produceReply struct {
	answers  map[place]answer
	throttle time.Duration
}

var errGarbled = errors.New("garbled reply")

// parseReply reads the body of a produce reply. Whatever the bytes are, it neither panics nor allocates more than in
// proportion to them. A place that is named twice with different codes has no answer.
func parseReply(body []byte, version int16) (produceReply, error) {
	r := reader{b: body}
	reply := produceReply{answers: map[place]answer{}}
	contradicted := map[place]bool{}
	for range r.count() {
		topic := r.string()
		for range r.count() {
			p := place{topic, int32(r.uint32())}
			a := r.answer(version)
			if old, twice := reply.answers[p]; twice && (old.code != a.code || old.landed != a.landed) {
				contradicted[p] = true
			}
			reply.answers[p] = a
			if r.failed {
				return produceReply{}, errGarbled
			}
		}
	}
	reply.throttle = time.Duration(int32(r.uint32())) * time.Millisecond
	if r.failed || len(r.b) > 0 {
		return produceReply{}, fmt.Errorf("%w: %d bytes too many", errGarbled, len(r.b))
	}
	for p := range contradicted {
		delete(reply.answers, p)
	}
	return reply, nil
}

// versionRange is what a broker speaks of an API.
type versionRange struct{ min, max int16 }

// parseVersions reads the body of a reply to ApiVersions version 0, as careful as parseReply.
func parseVersions(body []byte) (map[protocol.ApiKey]versionRange, int16, error) {
	r := reader{b: body}
	code := int16(r.uint16())
	ranges := map[protocol.ApiKey]versionRange{}
	for range r.count() {
		key := protocol.ApiKey(r.uint16())
		ranges[key] = versionRange{int16(r.uint16()), int16(r.uint16())}
		if r.failed {
			break
		}
	}
	if r.failed {
		return nil, 0, errGarbled
	}
	return ranges, code, nil
}

// reader takes values off a reply. Once something is missing it has failed and gives zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.b) {
		r.failed, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// offset reads an offset and says whether it is one.
func (r *reader) offset() bool {
	b := r.take(8)
	return b != nil && int64(binary.BigEndian.Uint64(b)) >= 0
}

// string reads a string.
func (r *reader) string() string {
	return string(r.take(int(int16(r.uint16()))))
}

// nullable reads a string that may be null, which is "".
func (r *reader) nullable() string {
	n := int(int16(r.uint16()))
	if n == -1 {
		return ""
	}
	return string(r.take(n))
}

// count reads the length of an array. No element takes less than a byte.
func (r *reader) count() int {
	n := int(int32(r.uint32()))
	if n < 0 || n > len(r.b) {
		r.failed, r.b = true, nil
		return 0
	}
	return n
}

// answer reads what a reply says of a place, after its number. A leader that refuses a batch at once gives no offsets (-1).
// One that has appended it, waits for its replicas, and then has a bad word for it only changes the code of the good
// answer that it had made ready (Kafka 4.4, kafka.server.DelayedProduce).
func (r *reader) answer(version int16) answer {
	a := answer{code: int16(r.uint16())}
	a.landed = r.offset()
	r.take(8) // log append time
	if version >= 5 {
		a.landed = r.offset() && a.landed // the start of the log
	}
	if version < 8 {
		return a
	}
	for range r.count() {
		a.records = append(a.records, recordError{int(int32(r.uint32())), r.nullable()})
		if r.failed {
			return answer{}
		}
	}
	a.message = r.nullable()
	return a
}
