package kafka

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

var uncompressed = map[string]string{"COMPRESSION": "none"}

func fill(batch []sinks.Message, size int) []sinks.Message {
	for i := range batch {
		batch[i].Payload = bytes.Repeat([]byte("x"), size)
	}
	return batch
}

// TestB11TooLargeTogether: small records that only together exceed the limit are all accepted, in order; the second time
// the limit is known.
func TestB11TooLargeTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults []kfake.Fault
		most   int64 // requests for the second batch
	}{
		{"limit can be read", nil, 60},
		{"limit is secret", []kfake.Fault{{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1}}, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1)
			broker := cluster.ListenAddrs()[0]
			topic := newTopic(t, broker, 1, "max.message.bytes=10000")
			cluster.Fault(c.faults...)
			s := open(t, broker, uncompressed)
			batch := fill(keyed(messages(topic, 400), "k"), 1000)
			accepted(t, publish(t, s, batch[:200]))
			requests := count(cluster, kmsg.Produce)
			accepted(t, publish(t, s, batch[200:]))
			if n := requests.Load(); n > c.most || n < 20 {
				t.Errorf("%d requests for 200 kB in batches of 10 kB, want at most %d", n, c.most)
			}
			if got := ids(read(t, broker, topic, 400)); !slices.IsSortedFunc(got, func(a, b string) int { return number(a) - number(b) }) {
				t.Errorf("out of order: %v", got)
			}
		})
	}
}

// count counts the requests of a kind from now on.
func count(c *kfake.Cluster, key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
}

// TestB11TooLargeAlone: the one is rejected with both figures where they are known, its neighbours are accepted.
func TestB11TooLargeAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults []kfake.Fault
		limit  string
	}{
		{"limit can be read", nil, "10000"},
		{"limit is secret", []kfake.Fault{{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1}}, "max.message.bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1)
			broker := cluster.ListenAddrs()[0]
			topic := newTopic(t, broker, 1, "max.message.bytes=10000")
			cluster.Fault(c.faults...)
			batch := fill(keyed(messages(topic, 50), "k"), 100)
			fill(batch[20:21], 20_000)
			results := publish(t, open(t, broker, uncompressed), batch)
			want(t, results, 0, 20, sinks.Accepted, sinks.ScopeMessage)
			want(t, results, 20, 21, sinks.Rejected, sinks.ScopeMessage)
			want(t, results, 21, 50, sinks.Accepted, sinks.ScopeMessage)
			if text := results[20].Err.Error(); !strings.Contains(text, "202") || !strings.Contains(text, c.limit) {
				t.Errorf("the error should name the size and the limit: %s", text)
			}
			read(t, broker, topic, 49)
		})
	}
}

// TestCompressedBelowTheLimit: what counts is the size after compression.
func TestCompressedBelowTheLimit(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1)
	topic := newTopic(t, cluster.ListenAddrs()[0], 1, "max.message.bytes=10000")
	accepted(t, publish(t, open(t, cluster.ListenAddrs()[0]), fill(messages(topic, 3), 500_000)))
}

// refusePoison has the broker refuse every batch with a record that holds the word, naming them or not.
func refusePoison(c *kfake.Cluster, named bool) {
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		if !bytes.Contains(req.Topics[0].Partitions[0].Records, []byte("poison")) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		acceptAll(req, resp)
		p := &resp.Topics[0].Partitions[0]
		p.ErrorCode = kerr.InvalidRecord.Code
		for i, record := range bytes.Split(req.Topics[0].Partitions[0].Records, []byte("relay-id"))[1:] {
			if named && bytes.Contains(record, []byte("poison")) {
				why := "this one is bad"
				p.ErrorRecords = append(p.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: int32(i), ErrorMessage: &why})
			}
		}
		if named { // nonsense that must do no harm
			p.ErrorRecords = append(p.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: -1}, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: 1 << 30})
		}
		return resp, nil, true
	})
}

// TestInvalidRecords: the bad ones are found, by the broker's word or by halving, and only they are rejected.
func TestInvalidRecords(t *testing.T) {
	t.Parallel()
	for name, named := range map[string]bool{"named": true, "unnamed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
			refusePoison(cluster, named)
			batch := keyed(messages("a", 100), "k")
			bad := map[int]bool{0: true, 2: true, 57: true, 99: true}
			for i := range bad {
				// In a header behind the id, so that the fake finds the record that it is in.
				batch[i].Headers = []sinks.Header{{Name: "x", Text: "poison"}}
			}
			results := publish(t, open(t, cluster.ListenAddrs()[0], uncompressed), batch)
			for i, r := range results {
				if bad[i] {
					want(t, results, i, i+1, sinks.Rejected, sinks.ScopeMessage)
					if r.Err != nil && strings.Contains(r.Err.Error(), "this one is bad") != named {
						t.Errorf("result %d: %v", i, r.Err)
					}
				} else {
					want(t, results, i, i+1, sinks.Accepted, sinks.ScopeMessage)
				}
			}
			got := ids(read(t, cluster.ListenAddrs()[0], "a", 96))
			if !slices.IsSortedFunc(got, func(a, b string) int { return number(a) - number(b) }) {
				t.Errorf("out of order: %v", got)
			}
		})
	}
}

// TestNothingOvertakes: when a piece of a partition fails, what comes behind it isn't sent.
func TestNothingOvertakes(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.NotEnoughReplicas, Count: -1, When: func(r kmsg.Request) bool {
		return bytes.Contains(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records, []byte("a/8")) // the second piece
	}})
	batch := append(fill(keyed(messages("a", 40), "k"), 100_000), messages("b", 3)...) // a: five pieces
	results := publish(t, open(t, cluster.ListenAddrs()[0], uncompressed), batch)
	want(t, results, 0, 8, sinks.Accepted, sinks.ScopeMessage)
	want(t, results, 8, 40, sinks.Unavailable, sinks.ScopeAddress)
	want(t, results, 40, 43, sinks.Accepted, sinks.ScopeMessage)
	read(t, cluster.ListenAddrs()[0], "a", 8)
}

// TestLoad: a request takes as many pieces as fit, and at least one.
func TestLoad(t *testing.T) {
	t.Parallel()
	p := &publication{batch: make([]sinks.Message, 5)}
	var queues []*queue
	for i, size := range []int{requestBytes / 3, requestBytes / 3, requestBytes / 2, 2 * requestBytes, 1} {
		p.batch[i].Payload = make([]byte, size)
		queues = append(queues, &queue{pieces: [][]int{{i}}})
	}
	for _, want := range []int{2, 1, 1, 1} {
		got := p.load(queues)
		if len(got) != want {
			t.Errorf("%d pieces in a request while %d wait, want %d", len(got), len(queues), want)
		}
		queues = queues[len(got):]
	}
}
