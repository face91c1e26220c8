package kafka

import (
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// spreadOut gives each message a key of its own.
func spreadOut(batch []sinks.Message) []sinks.Message {
	for i := range batch {
		batch[i].Key = &batch[i].ID
	}
	return batch
}

// TestNotLeaderOfOne: one of twelve partitions is sent once more, the others are not.
func TestNotLeaderOfOne(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 3, kfake.SeedTopics(12, "a"))
	broker := cluster.ListenAddrs()[0]
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{7}, Err: kerr.NotLeaderForPartition})
	s := open(t, broker)
	accepted(t, publish(t, s, spreadOut(messages("a", 600))))
	got := ids(read(t, broker, "a", 600))
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 600 {
		t.Errorf("%d different messages, want 600", n)
	}
}

// TestLeadersMove: whatever the cluster does between two batches, the next one is accepted at once.
func TestLeadersMove(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 3, kfake.SeedTopics(12, "a"))
	broker := cluster.ListenAddrs()[0]
	s := open(t, broker)
	accepted(t, publish(t, s, spreadOut(messages("a", 120))))
	cluster.ShufflePartitionLeaders()
	accepted(t, publish(t, s, spreadOut(messages("a", 120))))
	node := cluster.LeaderFor("a", 0)
	if err := cluster.RemoveNode(node); err != nil {
		t.Fatal(err)
	}
	accepted(t, publish(t, s, spreadOut(messages("a", 120))))
	if _, _, err := cluster.AddNode(node, 0); err != nil {
		t.Fatal(err)
	}
	cluster.ShufflePartitionLeaders()
	accepted(t, publish(t, s, spreadOut(messages("a", 120))))
}

// describeAs has the cluster say of topic a what edit makes of the truth, for so many questions (-1: always).
func describeAs(t *testing.T, c *kfake.Cluster, times int, edit func(*kmsg.MetadataResponseTopic)) {
	t.Helper()
	truth := c.ListenAddrs()
	var mu sync.Mutex
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if times == 0 {
			return nil, nil, false
		}
		times--
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		for i, addr := range truth {
			host, port, _ := net.SplitHostPort(addr)
			n, _ := strconv.Atoi(port)
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(i), Host: host, Port: int32(n)})
		}
		name := "a"
		topic := kmsg.MetadataResponseTopic{Topic: &name}
		for p := range int32(3) {
			topic.Partitions = append(topic.Partitions, kmsg.MetadataResponseTopicPartition{Partition: p, Leader: 0, Replicas: []int32{0, 1, 2}, ISR: []int32{0, 1, 2}})
		}
		edit(&topic)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}

// TestPartitionWithoutLeader: for a moment it costs a question, for longer its messages wait and the others don't.
func TestPartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	for name, times := range map[string]int{"for a moment": 1, "for long": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(3, "a"))
			describeAs(t, cluster, times, func(topic *kmsg.MetadataResponseTopic) { topic.Partitions[1].Leader = -1 })
			s := open(t, cluster.ListenAddrs()[0])
			batch := append(spreadOut(messages("a", 60)), messages("a", 200)...)
			results := publish(t, s, batch)
			for i, r := range results {
				lost := times < 0 && batch[i].Key != nil && partitionOf(partitioners["murmur2"], *batch[i].Key, 3) == 1
				if lost {
					want(t, results, i, i+1, sinks.Unavailable, sinks.ScopeAddress)
				} else if r.Outcome != sinks.Accepted {
					t.Errorf("result %d: got %v (%v)", i, r.Outcome, r.Err)
				}
			}
			if err := s.Check(t.Context(), "a"); (err != nil) != (times < 0) {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

// TestLeaderOutOfReach: a broker that is advertised and can't be reached concerns the topics that it leads.
func TestLeaderOutOfReach(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(3, "a"))
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 0, Host: "127.0.0.1", Port: 1}}
		name := "a"
		resp.Topics = []kmsg.MetadataResponseTopic{{Topic: &name, Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: 0}}}}
		return resp, nil, true
	})
	s := open(t, cluster.ListenAddrs()[0])
	wantAll(t, publish(t, s, messages("a", 3)), sinks.Unavailable, sinks.ScopeAddress)
	if err := s.Check(t.Context(), "a"); err == nil {
		t.Error("Check finds nothing wrong")
	}
	if err := s.Check(t.Context(), ""); err != nil {
		t.Errorf("Check of the cluster alone: %v", err)
	}
}

// TestPartitionsAreAdded: they are used once the layout is asked for again, which a check does.
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 2)
	broker := cluster.ListenAddrs()[0]
	topic := newTopic(t, broker, 1)
	s := open(t, broker)
	accepted(t, publish(t, s, spreadOut(messages(topic, 30))))
	if _, err := kadm.NewClient(client(t, broker)).UpdatePartitions(t.Context(), 6, topic); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	accepted(t, publish(t, s, spreadOut(messages(topic, 60))))
	used := map[int32]bool{}
	for _, r := range read(t, broker, topic, 90) {
		used[r.Partition] = true
	}
	if len(used) != 6 {
		t.Errorf("partitions %v are used, want all 6", used)
	}
}

// TestOnlyTopicsInUse: the cluster is asked once, about the topics of the batch.
func TestOnlyTopicsInUse(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b", "unused"))
	var mu sync.Mutex
	var asked []string
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		req := r.(*kmsg.MetadataRequest)
		if req.Topics == nil || req.AllowAutoTopicCreation {
			asked = append(asked, "ALL")
		}
		for _, topic := range req.Topics {
			asked = append(asked, *topic.Topic)
		}
		return nil, nil, false
	})
	s := open(t, cluster.ListenAddrs()[0])
	if err := s.Check(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		accepted(t, publish(t, s, append(messages("a", 1), messages("b", 1)...)))
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.Sort(asked); !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("asked about %v", asked)
	}
}

// TestQuestionsAreLimited: while a topic is missing, many batches don't ask more than every metadataPause.
func TestQuestionsAreLimited(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1)
	questions := count(cluster, kmsg.Metadata)
	s := open(t, cluster.ListenAddrs()[0])
	start := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				wantAll(t, publish(t, s, messages("missing", 1)), sinks.Unavailable, sinks.ScopeAddress)
			}
		})
	}
	all.Wait()
	if n, most := questions.Load(), int64(time.Since(start)/metadataPause)+2; n > most {
		t.Errorf("%d questions in %v, want at most %d", n, time.Since(start), most)
	}
}

// TestQuestionsAboutLeadersAreLimited as well, and each batch is sent twice, not more.
func TestQuestionsAboutLeadersAreLimited(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
	questions, requests := count(cluster, kmsg.Metadata), count(cluster, kmsg.Produce)
	s := open(t, cluster.ListenAddrs()[0])
	start := time.Now()
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for range 4 {
				wantAll(t, publish(t, s, messages("a", 1)), sinks.Unavailable, sinks.ScopeAddress)
			}
		})
	}
	all.Wait()
	if n, most := questions.Load(), int64(time.Since(start)/metadataPause)+2; n > most || n < 2 {
		t.Errorf("%d questions in %v, want 2 to %d", n, time.Since(start), most)
	}
	if n := requests.Load(); n != 40 {
		t.Errorf("%d requests for 20 batches, want 40", n)
	}
}

// TestForgottenTopics: what isn't used any more doesn't fill the memory.
func TestForgottenTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(&dialer{}, nil, 1)
	old := time.Now().Add(-2 * metadataTTL)
	for i := range topicsKept {
		name := strconv.Itoa(i)
		c.topics[name] = &topic{name: name, asked: old, layout: &layout{code: int16(kafkago.UnknownTopicOrPartition)}}
	}
	c.forgetTopics(time.Now())
	if len(c.topics) > 0 {
		t.Errorf("%d topics are kept", len(c.topics))
	}
}

// TestCheckAsksForTheRightToWrite, where brokers tell.
func TestCheckAsksForTheRightToWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operations int32
		fails      bool
	}{
		"read and describe": {1<<3 | 1<<8, true}, "write and describe": {1<<4 | 1<<8, false}, "nobody knows": {math.MinInt32, false}, "too old to say": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(3, "a"))
			describeAs(t, cluster, -1, func(topic *kmsg.MetadataResponseTopic) { topic.AuthorizedOperations = c.operations })
			if err := open(t, cluster.ListenAddrs()[0]).Check(t.Context(), "a"); (err != nil) != c.fails {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

// TestB12ReplicasInSync: Check compares with what acks=all asks for.
func TestB12ReplicasInSync(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, least, acks string
		isr               []int32
		fails             bool
	}{
		{"too few", "2", "all", []int32{0}, true}, {"enough", "2", "all", []int32{0, 1}, false}, {"more asked for than there are", "5", "all", []int32{0, 1, 2}, false},
		{"the leader's word", "2", "1", []int32{0}, false}, {"least is one", "1", "all", []int32{0}, false}, {"not to be read", "", "all", []int32{0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(3, "a"))
			describeAs(t, cluster, -1, func(topic *kmsg.MetadataResponseTopic) { topic.Partitions[1].ISR = c.isr })
			cluster.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
				resource := kmsg.DescribeConfigsResponseResource{ResourceName: "a", ErrorCode: kerr.TopicAuthorizationFailed.Code}
				if c.least != "" {
					resource.ErrorCode = 0
					resource.Configs = []kmsg.DescribeConfigsResponseResourceConfig{{Name: "min.insync.replicas", Value: &c.least}}
				}
				resp.Resources = append(resp.Resources, resource)
				return resp, nil, true
			})
			s := open(t, cluster.ListenAddrs()[0], map[string]string{"ACKS": c.acks})
			if err := s.Check(t.Context(), "a"); (err != nil) != c.fails {
				t.Errorf("Check: %v", err)
			}
		})
	}
}
