package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// twoKeys makes ordered messages of two keys in turns: odd numbers and even ones.
func twoKeys(topic string, n int) []sinks.Message {
	batch := ordered(topic, n)
	odd := "odd"
	for i := 1; i < n; i += 2 {
		batch[i].Key = &odd
	}
	return batch
}

// behindIs says what should become of the messages of twoKeys when those of bad are refused.
func behindIs(t *testing.T, results []sinks.Result, outcome sinks.Outcome, bad ...int) (log []int) {
	t.Helper()
	stopped := map[int]bool{}
	for i, r := range results {
		switch {
		case stopped[i%2]:
			want(t, results, i, i+1, sinks.Unavailable, sinks.ScopeMessage)
			if r.Err != nil && (!strings.Contains(r.Err.Error(), "the same key") || !strings.Contains(r.Err.Error(), outcome.String())) {
				t.Errorf("result %d doesn't say why: %v", i, r.Err)
			}
		case slices.Contains(bad, i):
			want(t, results, i, i+1, outcome, sinks.ScopeMessage)
			stopped[i%2] = true
		default:
			want(t, results, i, i+1, sinks.Accepted, sinks.ScopeMessage)
			log = append(log, i)
		}
	}
	return log
}

// TestRefusedInTheMiddle: whatever refuses a message, and however it is found out, nothing of its key goes on behind it;
// other keys of the same partition do.
func TestRefusedInTheMiddle(t *testing.T) {
	t.Parallel()
	large := func(batch []sinks.Message, bad []int) {
		for _, i := range bad {
			fill(batch[i:i+1], 20_000)
		}
	}
	poison := func(batch []sinks.Message, bad []int) {
		for _, i := range bad {
			batch[i].Headers = []sinks.Header{{Name: "x", Text: "poison"}}
		}
	}
	secret := kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1}
	for _, c := range []struct {
		name  string
		setup func(*kfake.Cluster)
		spoil func([]sinks.Message, []int)
		bad   []int
	}{
		{"too large", func(*kfake.Cluster) {}, large, []int{7}},
		{"too large, limit unknown", func(c *kfake.Cluster) { c.Fault(secret) }, large, []int{7}},
		{"too large, the first", func(*kfake.Cluster) {}, large, []int{0}},
		{"too large, both keys and more", func(*kfake.Cluster) {}, large, []int{4, 7, 9, 12}},
		{"invalid and named", func(c *kfake.Cluster) { refusePoison(c, true) }, poison, []int{5, 8}},
		{"invalid and named, several of a key", func(c *kfake.Cluster) { refusePoison(c, true) }, poison, []int{5, 8, 10, 13, 39}},
		{"invalid", func(c *kfake.Cluster) { refusePoison(c, false) }, poison, []int{5, 8, 9, 10, 39}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1)
			broker := cluster.ListenAddrs()[0]
			topic := newTopic(t, broker, 1, "max.message.bytes=10000")
			c.setup(cluster)
			batch := fill(twoKeys(topic, 40), 100)
			c.spoil(batch, c.bad)
			s := open(t, broker, uncompressed)
			log := behindIs(t, publish(t, s, batch), sinks.Rejected, c.bad...)
			accepted(t, publish(t, s, ordered(topic, 41)[40:])) // what was refused has used up no numbers
			wantLog(t, broker, topic, append(log, 40)...)
		})
	}
}

// TestRefusedMayPass: Failed stops a key as well.
func TestRefusedMayPass(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		if !strings.Contains(string(req.Topics[0].Partitions[0].Records), "a/11") {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		acceptAll(req, resp)
		resp.Topics[0].Partitions[0].ErrorCode = kerr.PolicyViolation.Code
		return resp, nil, true
	})
	log := behindIs(t, publish(t, open(t, cluster.ListenAddrs()[0], uncompressed), twoKeys("a", 30)), sinks.Failed, 11)
	wantLog(t, cluster.ListenAddrs()[0], "a", log...)
}

// TestPieceRefused: a run is cut into pieces by its bytes, and the broker has no room for one of them.
func TestPieceRefused(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 1, When: func(r kmsg.Request) bool {
		return strings.Contains(string(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records), "a/8")
	}})
	batch := fill(ordered("a", 40), 100_000)
	s := open(t, cluster.ListenAddrs()[0], uncompressed)
	results := publish(t, s, batch)
	want(t, results, 0, 8, sinks.Accepted, sinks.ScopeMessage)
	want(t, results, 8, 40, sinks.Unavailable, sinks.ScopeAddress)
	accepted(t, publish(t, s, batch[8:]))
	wantLog(t, cluster.ListenAddrs()[0], "a", numbers(0, 40)...)
}

func numbers(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// TestRefusedTopic: what is behind a message that can never be sent waits, though it could never be sent either.
func TestRefusedTopic(t *testing.T) {
	t.Parallel()
	results := publish(t, open(t, fake(t, 1).ListenAddrs()[0]), ordered("not a topic", 3))
	want(t, results, 0, 1, sinks.Rejected, sinks.ScopeMessage)
	want(t, results, 1, 3, sinks.Unavailable, sinks.ScopeMessage)
}

// TestSeveralTopics: a template sends the jobs of one key to several topics, or a route each job to two. The next job
// waits until the one before is accepted everywhere; two addresses of one job don't wait for each other.
func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		to   []string // by message: job and topic
		want string   // by message: A accepted, R rejected, U unavailable
	}{
		{"in turns", []string{"1a", "2b", "3b", "4a"}, "AAAA"},
		{"one is refused", []string{"1a", "2!", "3b", "4a"}, "ARUU"},
		{"the last of a topic is away", []string{"1a", "2missing", "3a"}, "AUU"},
		{"fan-out", []string{"1a", "1b", "2a", "2b", "3a", "3b"}, "AAAAAA"},
		{"fan-out, one refuses", []string{"1a", "1b", "2!", "2b", "3a", "3b"}, "AARAUU"},
		{"fan-out, the second refuses", []string{"1a", "2a", "2!", "3a"}, "AARU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 3, kfake.SeedTopics(3, "a", "b"))
			batch := ordered("", len(c.to))
			for i, to := range c.to {
				batch[i].ID, batch[i].Address = "job/"+to[:1], to[1:]
			}
			got := ""
			for _, r := range publish(t, open(t, cluster.ListenAddrs()[0]), batch) {
				got += strings.ToUpper(r.Outcome.String()[:1])
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			n := strings.Count(c.want, "A")
			if n > len(readAll(t, cluster.ListenAddrs()[0], "a", 0))+len(readAll(t, cluster.ListenAddrs()[0], "b", 0)) {
				t.Errorf("not all that was accepted is there")
			}
		})
	}
}

// TestRounds: who may be sent together.
func TestRounds(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"1a 2a 3a": "[0 0 0]", "1a 2b 3b 4a": "[0 1 1 2]", "1a 1b 2a 2b": "[0 0 1 1]", "1a 2a 2b 3b 4b": "[0 0 1 1 1]",
		"1a 1b 1c 2c": "[0 0 0 1]", "1a 2a 2b 2a 3a": "[0 0 1 1 2]",
	} {
		var r run
		var got []int
		for _, m := range strings.Fields(to) {
			got = append(got, r.add(&sinks.Message{ID: m[:1], Address: m[1:]}))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, want %s", to, got, want)
		}
	}
}

// TestEmptyKeyIsAKey where order counts, also to the partitioner that takes it for none.
func TestEmptyKeyIsAKey(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(8, "a"))
	batch := ordered("a", 300)
	for i := range batch {
		batch[i].Key = new(string)
	}
	accepted(t, publish(t, open(t, cluster.ListenAddrs()[0], map[string]string{"PARTITIONER": "crc32"}), batch))
	wantLog(t, cluster.ListenAddrs()[0], "a", numbers(0, 300)...)
}
