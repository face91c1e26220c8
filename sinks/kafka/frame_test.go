package kafka

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reply encodes a produce reply with another library.
func reply(version int16, topics ...kmsg.ProduceResponseTopic) []byte {
	r := kmsg.ProduceResponse{Version: version, Topics: topics, ThrottleMillis: 250}
	return r.AppendTo(nil)
}

func partitionReply(id int32, code int16) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.ErrorCode = id, code
	return p
}

func TestReplyOfEachVersion(t *testing.T) {
	t.Parallel()
	for version := int16(produceMinVersion); version <= produceMaxVersion; version++ {
		bad := partitionReply(3, 87)
		text, why := "invalid", "no key"
		bad.ErrorMessage = &text
		bad.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 2, ErrorMessage: &why}, {RelativeOffset: 5}}
		none, late := partitionReply(0, 6), partitionReply(1, 6)
		none.BaseOffset, late.BaseOffset, late.LogStartOffset = -1, 41, 0
		raw := reply(version, kmsg.ProduceResponseTopic{Topic: "b", Partitions: []kmsg.ProduceResponseTopicPartition{bad, partitionReply(0, 0)}},
			kmsg.ProduceResponseTopic{Topic: "a", Partitions: []kmsg.ProduceResponseTopicPartition{none, late}})
		got, err := parseReply(raw, version)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if got.throttle != 250*time.Millisecond || len(got.answers) != 4 || got.answers[place{"a", 0}].code != 6 || got.answers[place{"b", 0}].code != 0 {
			t.Errorf("version %d: %+v", version, got)
		}
		if got.answers[place{"a", 0}].landed || !got.answers[place{"a", 1}].landed {
			t.Errorf("version %d: what has no offset landed, or what has one didn't: %+v", version, got)
		}
		refused := got.answers[place{"b", 3}]
		details := refused.message == text && len(refused.records) == 2 && refused.records[0] == recordError{2, why} && refused.records[1] == recordError{5, ""}
		if refused.code != 87 || details != (version == 8) {
			t.Errorf("version %d: %+v", version, refused)
		}
	}
}

func TestContradictionIsNoAnswer(t *testing.T) {
	t.Parallel()
	topic := kmsg.ProduceResponseTopic{Topic: "a", Partitions: []kmsg.ProduceResponseTopicPartition{partitionReply(0, 0), partitionReply(1, 0), partitionReply(0, 6)}}
	got, err := parseReply(reply(8, topic), 8)
	if _, ok := got.answers[place{"a", 0}]; err != nil || ok || len(got.answers) != 1 {
		t.Errorf("got %+v, %v; want an answer for partition 1 alone", got, err)
	}
}

func TestReplyCutShortOrTooLong(t *testing.T) {
	t.Parallel()
	whole := reply(8, kmsg.ProduceResponseTopic{Topic: "a", Partitions: []kmsg.ProduceResponseTopicPartition{partitionReply(0, 0)}})
	for n := range whole {
		if got, err := parseReply(whole[:n], 8); !errors.Is(err, errGarbled) || len(got.answers) > 0 {
			t.Errorf("%d of %d bytes: got %+v, %v", n, len(whole), got, err)
		}
	}
	if _, err := parseReply(append(whole, 0), 8); !errors.Is(err, errGarbled) {
		t.Errorf("a byte too many: got %v", err)
	}
}

// TestReplyThatAnnouncesTooMuch is found out at once.
func TestReplyThatAnnouncesTooMuch(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for _, body := range []string{"\x7f\xff\xff\xff\x00\x00", "\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff\x00\x00"} {
		if _, err := parseReply([]byte(body), 8); !errors.Is(err, errGarbled) {
			t.Errorf("%q: got %v", body, err)
		}
	}
	if _, _, err := parseVersions([]byte("\x00\x00\x7f\xff\xff\xff\x00\x00")); !errors.Is(err, errGarbled) {
		t.Errorf("versions: got %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// FuzzReply feeds the reader with anything. What it takes for a reply is one: another library agrees.
func FuzzReply(f *testing.F) {
	for version := int16(produceMinVersion); version <= produceMaxVersion; version++ {
		f.Add(reply(version, kmsg.ProduceResponseTopic{Topic: "a", Partitions: []kmsg.ProduceResponseTopicPartition{partitionReply(0, 10)}}), version)
	}
	f.Add([]byte("\x7f\xff\xff\xff"), int16(8))
	f.Add(bytes.Repeat([]byte{0xff}, 64), int16(5))
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		version = produceMinVersion + (version&0x7fff)%(produceMaxVersion-produceMinVersion+1)
		got, err := parseReply(body, version)
		if err != nil {
			return
		}
		other := kmsg.ProduceResponse{Version: version}
		if err := other.ReadFrom(body); err != nil {
			t.Fatalf("taken for a reply, and isn't: %v", err)
		}
		for _, topic := range other.Topics {
			for _, p := range topic.Partitions {
				a, ok := got.answers[place{topic.Topic, p.Partition}]
				if landed := p.BaseOffset >= 0 && (version < 5 || p.LogStartOffset >= 0); ok && (a.code != p.ErrorCode || a.landed != landed) {
					t.Fatalf("%s/%d: code %d, landed %v, want %d, %v", topic.Topic, p.Partition, a.code, a.landed, p.ErrorCode, landed)
				}
			}
		}
	})
}
