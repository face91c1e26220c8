package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/jobrelay/relay/sinks"
)

// A record batch, version 2: a header of 61 bytes, then the records, compressed together or not.
const (
	batchHeader   = 61
	atLength      = 8  // int32: bytes after it
	atLeaderEpoch = 12 // int32: -1, a producer's
	atMagic       = 16
	atChecksum    = 17 // uint32: CRC-32C of all that follows it
	atAttributes  = 21 // int16: the codec in the lowest three bits
	atLastDelta   = 23 // int32: records - 1
	atFirstTime   = 27 // int64: milliseconds
	atLastTime    = 35
	atProducer    = 43 // int64; -1: not idempotent
	atEpoch       = 51 // int16
	atSequence    = 53 // int32
	atCount       = 57 // int32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoder writes record batches into buffers that it keeps. It isn't safe for concurrent use.
type encoder struct {
	codec   compress.Codec // nil: none
	frame   []byte         // the request being built
	records []byte         // scratch: records before they are compressed
	headers []byte         // scratch: one record's headers
}

// appendBatch appends the messages of batch that index names, as one record batch, and returns how many bytes the
// broker counts against its limit. now is the timestamp of all of them.
func (e *encoder) appendBatch(dst []byte, batch []sinks.Message, index []int, now time.Time, by stamp) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, batchHeader)...)
	attributes := int8(0)
	if e.codec == nil {
		dst = e.appendRecords(dst, batch, index)
	} else {
		e.records = e.appendRecords(e.records[:0], batch, index)
		var err error
		if dst, attributes, err = e.compress(dst); err != nil {
			return dst[:start], err
		}
	}
	b := dst[start:]
	be := binary.BigEndian
	be.PutUint32(b[atLength:], uint32(len(b)-atLeaderEpoch))
	be.PutUint32(b[atLeaderEpoch:], ^uint32(0))
	b[atMagic] = 2
	be.PutUint16(b[atAttributes:], uint16(attributes))
	be.PutUint32(b[atLastDelta:], uint32(len(index)-1))
	be.PutUint64(b[atFirstTime:], uint64(now.UnixMilli()))
	be.PutUint64(b[atLastTime:], uint64(now.UnixMilli()))
	be.PutUint64(b[atProducer:], uint64(by.producer))
	be.PutUint16(b[atEpoch:], uint16(by.epoch))
	be.PutUint32(b[atSequence:], uint32(by.first))
	be.PutUint32(b[atCount:], uint32(len(index)))
	be.PutUint32(b[atChecksum:], crc32.Checksum(b[atAttributes:], castagnoli))
	return dst, nil
}

func (e *encoder) appendRecords(dst []byte, batch []sinks.Message, index []int) []byte {
	for delta, i := range index {
		dst = e.appendRecord(dst, delta, &batch[i])
	}
	return dst
}

// compress appends the records compressed, or as they are where that is smaller, and says which codec it was.
func (e *encoder) compress(dst []byte) ([]byte, int8, error) {
	out := appender(dst)
	w := e.codec.NewWriter(&out)
	if _, err := w.Write(e.records); err != nil {
		return dst, 0, err
	}
	if err := w.Close(); err != nil {
		return dst, 0, err
	}
	if len(out)-len(dst) >= len(e.records) {
		return append(dst, e.records...), 0, nil
	}
	return out, e.codec.Code(), nil
}

type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

// appendRecord appends one record: its length, attributes, distance to the batch's timestamp (none) and to its first
// offset, key, value, headers.
func (e *encoder) appendRecord(dst []byte, delta int, m *sinks.Message) []byte {
	e.headers = appendHeaders(e.headers[:0], m)
	size := 1 + 1 + sizeVarint(delta) + sizeBytes(len(m.Payload)) + len(e.headers)
	if m.Key == nil {
		size += sizeVarint(-1)
	} else {
		size += sizeBytes(len(*m.Key))
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0)                         // attributes
	dst = append(dst, 0)                         // timestamp delta
	dst = binary.AppendVarint(dst, int64(delta)) // offset delta
	if m.Key == nil {
		dst = binary.AppendVarint(dst, -1)
	} else {
		dst = appendString(dst, *m.Key)
	}
	dst = binary.AppendVarint(dst, int64(len(m.Payload))) // empty is empty, never null: no tombstones
	dst = append(dst, m.Payload...)
	return append(dst, e.headers...)
}

// appendHeaders appends a record's headers: the relay's own, then the job's.
func appendHeaders(dst []byte, m *sinks.Message) []byte {
	n := 4 + len(m.Headers)
	if m.Replay != 0 {
		n++
	}
	var text [40]byte
	dst = binary.AppendVarint(dst, int64(n))
	dst = appendString(appendString(dst, sinks.HeaderID), m.ID)
	dst = appendString(appendString(dst, sinks.HeaderKind), m.Kind)
	dst = appendBytes(appendString(dst, sinks.HeaderAttempt), strconv.AppendInt(text[:0], int64(m.Attempt), 10))
	dst = appendBytes(appendString(dst, sinks.HeaderTime), appendTime(text[:0], m.Time))
	if m.Replay != 0 {
		dst = appendBytes(appendString(dst, sinks.HeaderReplay), strconv.AppendInt(text[:0], m.Replay, 10))
	}
	for _, h := range m.Headers {
		dst = appendString(appendString(dst, h.Name), h.Text)
	}
	return dst
}

// appendTime writes a time as sinks.TimeFormat does, three times as fast: package time has a short cut for RFC 3339.
func appendTime(dst []byte, t time.Time) []byte {
	dst = t.UTC().AppendFormat(dst, time.RFC3339)
	dst[len(dst)-1] = '.'
	micro := t.Nanosecond() / 1000
	for unit := 100_000; unit > 0; unit /= 10 {
		dst = append(dst, byte('0'+micro/unit%10))
	}
	return append(dst, 'Z')
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}

func appendBytes(dst []byte, b []byte) []byte {
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func sizeBytes(n int) int { return sizeVarint(n) + n }

// sizeVarint is the length of a zigzag varint.
func sizeVarint(n int) int {
	u := uint64(n<<1) ^ uint64(n>>63)
	size := 1
	for u >= 0x80 {
		u >>= 7
		size++
	}
	return size
}

// sizeBound is never less than the bytes a message takes in a record batch before compression.
func sizeBound(m *sinks.Message) int {
	const own = 160 // lengths, names and values of the relay's headers but id and kind
	n := own + len(m.Payload) + len(m.ID) + len(m.Kind)
	if m.Key != nil {
		n += len(*m.Key)
	}
	for _, h := range m.Headers {
		n += 20 + len(h.Name) + len(h.Text)
	}
	return n
}
