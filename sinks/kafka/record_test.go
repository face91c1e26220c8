package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// decodeBatch reads a record batch with another library, and fails on whatever a broker would refuse.
func decodeBatch(t *testing.T, b []byte) (kmsg.RecordBatch, []kmsg.Record) {
	t.Helper()
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(b); err != nil {
		t.Fatalf("record batch: %v", err)
	}
	if sum := crc32.Checksum(b[atAttributes:], castagnoli); uint32(batch.CRC) != sum {
		t.Errorf("checksum is %08x, want %08x", uint32(batch.CRC), sum)
	}
	if int(batch.Length) != len(b)-12 || batch.Magic != 2 || batch.FirstOffset != 0 || batch.LastOffsetDelta != batch.NumRecords-1 || batch.ProducerID != -1 || batch.ProducerEpoch != -1 || batch.FirstSequence != -1 || batch.PartitionLeaderEpoch != -1 {
		t.Errorf("header of %d bytes: %+v", len(b), batch)
	}
	raw := batch.Records
	if codec := compress.Compression(batch.Attributes & 7).Codec(); codec != nil {
		r := codec.NewReader(bytes.NewReader(raw))
		var plain bytes.Buffer
		if _, err := plain.ReadFrom(r); err != nil {
			t.Fatalf("decompress: %v", err)
		}
		raw = plain.Bytes()
	}
	var records []kmsg.Record
	for len(raw) > 0 {
		size, n := binary.Varint(raw)
		if n <= 0 || int(size) > len(raw)-n {
			t.Fatalf("record %d says it has %d bytes, there are %d", len(records), size, len(raw)-n)
		}
		var r kmsg.Record
		if err := r.ReadFrom(raw[:n+int(size)]); err != nil {
			t.Fatalf("record %d: %v", len(records), err)
		}
		records, raw = append(records, r), raw[n+int(size):]
	}
	if len(records) != int(batch.NumRecords) {
		t.Errorf("%d records, the header says %d", len(records), batch.NumRecords)
	}
	return batch, records
}

var sent = time.UnixMilli(1_772_600_767_890)

func encodeBatch(t *testing.T, codec compress.Codec, batch []sinks.Message, index []int) []byte {
	t.Helper()
	e := &encoder{codec: codec}
	b, err := e.appendBatch(nil, batch, index, sent, unstamped)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func all(n int) []int {
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	return index
}

func TestRecordsAsOthersReadThem(t *testing.T) {
	t.Parallel()
	key, empty := "order-1", ""
	batch := messages("t", 4)
	batch[0].Key, batch[0].Replay, batch[0].Attempt = &key, 4711, 12
	batch[0].Headers = []sinks.Header{{Name: "a", Text: ""}, {Name: "n", Text: "5000000000", Value: int64(5_000_000_000)}, {Name: "u", Text: "é😀"}}
	batch[1].Key = &empty
	batch[2].Payload, batch[2].Opaque = []byte{}, true
	batch[3].Payload = bytes.Repeat([]byte("x"), 100_000)
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := encodeBatch(t, codec, batch, []int{3, 0, 1, 2})
			header, records := decodeBatch(t, raw)
			if header.FirstTimestamp != sent.UnixMilli() || header.MaxTimestamp != sent.UnixMilli() {
				t.Errorf("timestamps %d and %d, want %d", header.FirstTimestamp, header.MaxTimestamp, sent.UnixMilli())
			}
			if (codec != nil) != (len(raw) < 50_000) {
				t.Errorf("the batch has %d bytes", len(raw))
			}
			compareRecords(t, records, []sinks.Message{batch[3], batch[0], batch[1], batch[2]})
		})
	}
}

func compareRecords(t *testing.T, records []kmsg.Record, batch []sinks.Message) {
	t.Helper()
	for i, r := range records {
		m := batch[i]
		if int(r.OffsetDelta) != i || r.TimestampDelta64 != 0 {
			t.Errorf("record %d: offset delta %d, timestamp delta %d", i, r.OffsetDelta, r.TimestampDelta64)
		}
		if (r.Key == nil) != (m.Key == nil) || m.Key != nil && string(r.Key) != *m.Key {
			t.Errorf("record %d: key %q", i, r.Key)
		}
		if r.Value == nil || !bytes.Equal(r.Value, m.Payload) {
			t.Errorf("record %d: value %.100q (null: %v), want %.100q", i, r.Value, r.Value == nil, m.Payload)
		}
		var got []string
		for _, h := range r.Headers {
			if h.Value == nil {
				t.Errorf("record %d: header %s is null", i, h.Key)
			}
			got = append(got, h.Key+"="+string(h.Value))
		}
		if want := wantHeaders(m); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("record %d: headers %q, want %q", i, got, want)
		}
	}
}

func wantHeaders(m sinks.Message) []string {
	want := []string{"relay-id=" + m.ID, "relay-kind=" + m.Kind, "relay-attempt=1", "relay-time=" + m.Time.Format(sinks.TimeFormat)}
	if m.Replay != 0 {
		want[2] = "relay-attempt=12"
		want = append(want, "relay-replay=4711")
	}
	for _, h := range m.Headers {
		want = append(want, h.Name+"="+h.Text)
	}
	return want
}

func TestTimeHasSixDigits(t *testing.T) {
	t.Parallel()
	for _, tm := range []time.Time{
		{}, time.Unix(0, 0), time.Unix(1_772_600_767, 999_999_999), time.Unix(1_772_600_767, 1_000).In(time.FixedZone("", 3600)),
		time.Date(12345, 1, 2, 3, 4, 5, 6000, time.UTC),
	} {
		if got, want := string(appendTime(nil, tm)), tm.UTC().Format(sinks.TimeFormat); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestBatchIsSentAsItIsWhenCompressionDoesNotPay(t *testing.T) {
	t.Parallel()
	header, _ := decodeBatch(t, encodeBatch(t, compress.Lz4.Codec(), messages("t", 1), []int{0}))
	if header.Attributes != 0 {
		t.Errorf("attributes %d: one short record should not be compressed", header.Attributes)
	}
}

// FuzzRecordBatch encodes messages of any content and has another library read them.
func FuzzRecordBatch(f *testing.F) {
	f.Add("shop/1", "order", "key", true, []byte(`{"a":1}`), "name", "value", int64(7), 3, uint8(3))
	f.Add("", "", "", false, []byte{}, "", "", int64(0), 1, uint8(0))
	f.Add("x/9223372036854775807", strings.Repeat("k", 255), strings.Repeat("é", 512), true, bytes.Repeat([]byte{0}, 70_000), "\x00", strings.Repeat("v", 300), int64(-1), 200, uint8(4))
	f.Fuzz(func(t *testing.T, id, kind, key string, hasKey bool, payload []byte, name, value string, replay int64, n int, codec uint8) {
		m := sinks.Message{ID: id, Kind: kind, Payload: payload, Replay: replay, Attempt: int(replay % 1000), Time: sent, Headers: []sinks.Header{{Name: name, Text: value}}}
		if hasKey {
			m.Key = &key
		}
		batch := make([]sinks.Message, 1+n&0xff%(1+200_000/(1+len(payload)))) // large ones take too long
		size := batchHeader
		for i := range batch {
			batch[i] = m
			size += sizeBound(&m)
		}
		raw := encodeBatch(t, codecs[[]string{"none", "gzip", "snappy", "lz4", "zstd"}[codec%5]], batch, all(len(batch)))
		if len(raw) > size {
			t.Errorf("%d bytes, the bound is %d", len(raw), size)
		}
		_, records := decodeBatch(t, raw)
		for _, r := range records {
			if !bytes.Equal(r.Value, payload) || hasKey != (r.Key != nil) || hasKey && string(r.Key) != key {
				t.Fatalf("a record has key %q and value %.50q", r.Key, r.Value)
			}
			if last := r.Headers[len(r.Headers)-1]; utf8.ValidString(name) && (last.Key != name || string(last.Value) != value) {
				t.Fatalf("a record has header %q=%q, want %q=%q", last.Key, last.Value, name, value)
			}
		}
	})
}
