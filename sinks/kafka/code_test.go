package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestCodes has the broker answer with one code for ever, and compares what becomes of the messages.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err      *kerr.Error
		outcome  sinks.Outcome
		scope    sinks.Scope
		appended bool
	}{
		{kerr.RequestTimedOut, sinks.Unknown, sinks.ScopeAddress, true},
		{kerr.NotEnoughReplicasAfterAppend, sinks.Unknown, sinks.ScopeAddress, true},
		{kerr.UnknownServerError, sinks.Unknown, sinks.ScopeAddress, false},
		{kerr.NetworkException, sinks.Unknown, sinks.ScopeAddress, false},
		{kerr.KafkaStorageError, sinks.Unknown, sinks.ScopeAddress, false},
		{&kerr.Error{Message: "FROM_THE_FUTURE", Code: 9999}, sinks.Unknown, sinks.ScopeAddress, false},

		{kerr.UnknownTopicOrPartition, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.LeaderNotAvailable, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.NotLeaderForPartition, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.BrokerNotAvailable, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.ReplicaNotAvailable, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.ListenerNotFound, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.FencedLeaderEpoch, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.UnknownLeaderEpoch, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.UnknownTopicID, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.InconsistentTopicID, sinks.Unavailable, sinks.ScopeAddress, false},

		{kerr.NotEnoughReplicas, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.TopicAuthorizationFailed, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.UnsupportedCompressionType, sinks.Unavailable, sinks.ScopeAddress, false},
		{kerr.InvalidTimestamp, sinks.Unavailable, sinks.ScopeAddress, false},

		{kerr.ThrottlingQuotaExceeded, sinks.Unavailable, sinks.ScopeSink, false},
		{kerr.ClusterAuthorizationFailed, sinks.Unavailable, sinks.ScopeSink, false},
		{kerr.UnsupportedVersion, sinks.Unavailable, sinks.ScopeSink, false},
		{kerr.InvalidRequiredAcks, sinks.Unavailable, sinks.ScopeSink, false},

		{kerr.MessageTooLarge, sinks.Rejected, sinks.ScopeMessage, false},
		{kerr.RecordListTooLarge, sinks.Rejected, sinks.ScopeMessage, false},
		{kerr.InvalidRecord, sinks.Rejected, sinks.ScopeMessage, false},
		{kerr.InvalidTopicException, sinks.Rejected, sinks.ScopeMessage, false},
		{kerr.CorruptMessage, sinks.Failed, sinks.ScopeMessage, false},
		{kerr.InvalidRequest, sinks.Failed, sinks.ScopeMessage, false},
		{kerr.PolicyViolation, sinks.Failed, sinks.ScopeMessage, false},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(1, "bad", "good"))
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "bad", Err: c.err, Count: -1})
			s := open(t, cluster.ListenAddrs()[0])
			batch := append(messages("bad", 5), messages("good", 5)...)
			results := publish(t, s, batch)
			want(t, results, 0, 5, c.outcome, c.scope)
			want(t, results, 5, 10, sinks.Accepted, sinks.ScopeMessage)
			if err := results[0].Err; !strings.Contains(err.Error(), "topic bad") || !errors.Is(err, kafkago.Error(c.err.Code)) {
				t.Errorf("the error should name the topic and the code: %v", err)
			}
			if c.appended {
				read(t, cluster.ListenAddrs()[0], "bad", 5)
			}
			read(t, cluster.ListenAddrs()[0], "good", 5)
		})
	}
}

// TestTopicCodes has the broker refuse the topic when it is asked about it. Nothing is sent there.
func TestTopicCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     *kerr.Error
		outcome sinks.Outcome
		scope   sinks.Scope
	}{
		{kerr.UnknownTopicOrPartition, sinks.Unavailable, sinks.ScopeAddress},
		{kerr.TopicAuthorizationFailed, sinks.Unavailable, sinks.ScopeAddress},
		{kerr.LeaderNotAvailable, sinks.Unavailable, sinks.ScopeAddress},
		{kerr.UnknownServerError, sinks.Unavailable, sinks.ScopeAddress},
		{kerr.InvalidTopicException, sinks.Rejected, sinks.ScopeMessage},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(1, "bad", "good"))
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "bad", Err: c.err, Count: -1})
			s := open(t, cluster.ListenAddrs()[0])
			results := publish(t, s, append(messages("bad", 5), messages("good", 5)...))
			want(t, results, 0, 5, c.outcome, c.scope)
			want(t, results, 5, 10, sinks.Accepted, sinks.ScopeMessage)
			if err := s.Check(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), `"bad"`) {
				t.Errorf("Check: %v", err)
			}
			if err := s.Check(t.Context(), "good"); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

// answerWith has the cluster answer the next produce request with what build makes of it.
func answerWith(c *kfake.Cluster, build func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse)) {
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		build(req, resp)
		return resp, nil, true
	})
}

// acceptAll answers that everything is appended.
func acceptAll(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
	for _, t := range req.Topics {
		topic := kmsg.ProduceResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, partitionReply(p.Partition, 0))
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// TestB12AcksOnTheWire: all is -1, and the broker gives up before the caller does.
func TestB12AcksOnTheWire(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]int16{"all": -1, "1": 1} {
		cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
		var got kmsg.ProduceRequest
		answerWith(cluster, func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
			got = *req
			acceptAll(req, resp)
		})
		s := open(t, cluster.ListenAddrs()[0], map[string]string{"ACKS": setting})
		accepted(t, publishIn(t, s, messages("a", 1), 20*time.Second))
		if got.Acks != want || got.TimeoutMillis < 5_000 || got.TimeoutMillis > 18_000 {
			t.Errorf("ACKS=%s: acks %d, timeout %d ms", setting, got.Acks, got.TimeoutMillis)
		}
	}
}

// TestB19PartitionMissingInReply is unknown, and the others are accepted.
func TestB19PartitionMissingInReply(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b"))
	answerWith(cluster, func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
		acceptAll(req, resp)
		resp.Topics = resp.Topics[1:]
	})
	results := publish(t, open(t, cluster.ListenAddrs()[0]), append(messages("b", 3), messages("a", 3)...))
	want(t, results, 0, 3, sinks.Accepted, sinks.ScopeMessage) // the request is sorted: topic a comes first and has no answer
	want(t, results, 3, 6, sinks.Unknown, sinks.ScopeAddress)
}

// TestReplyInAnotherOrder is matched by name: the error belongs to a/2 wherever it stands.
func TestReplyInAnotherOrder(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(3, "a", "b"))
	answerWith(cluster, func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
		acceptAll(req, resp)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; resp.Topics[i].Topic == "a" && p.Partition == 2 {
					p.ErrorCode = kerr.NotEnoughReplicas.Code
				}
			}
			reverse(resp.Topics[i].Partitions)
		}
		reverse(resp.Topics)
	})
	s := open(t, cluster.ListenAddrs()[0])
	batch := append(messages("b", 100), messages("a", 100)...)
	for i := range batch {
		key := batch[i].ID
		batch[i].Key = &key
	}
	refused := 0
	for i, r := range publish(t, s, batch) {
		bad := batch[i].Address == "a" && partitionOf(partitioners["murmur2"], *batch[i].Key, 3) == 2
		if bad != (r.Outcome == sinks.Unavailable) || !bad != (r.Outcome == sinks.Accepted) {
			t.Errorf("message %d of %s: got %v (%v)", i, batch[i].Address, r.Outcome, r.Err)
		}
		if bad {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no message went to a/2: the test shows nothing")
	}
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

// TestThrottle: nothing is sent while the broker doesn't read, and what can't wait is not sent at all.
func TestThrottle(t *testing.T) {
	t.Parallel()
	const pause = 600 * time.Millisecond
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	answerWith(cluster, func(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
		acceptAll(req, resp)
		resp.ThrottleMillis = int32(pause.Milliseconds())
	})
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 1)))
	start := time.Now()
	wantAll(t, publishIn(t, s, messages("a", 1), pause/6), sinks.Unavailable, sinks.ScopeMessage)
	accepted(t, publish(t, s, messages("a", 1)))
	if took := time.Since(start); took < pause*9/10 {
		t.Errorf("the next request went out after %v, the broker asked for %v", took, pause)
	}
}
