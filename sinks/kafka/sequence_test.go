package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestStampCodes: what becomes of an ordered batch by the codes that only a stamp can bring, and that the next one is
// accepted whatever it was.
func TestStampCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     *kerr.Error
		outcome sinks.Outcome
	}{
		{kerr.OutOfOrderSequenceNumber, sinks.Unavailable}, {kerr.UnknownProducerID, sinks.Unavailable},
		{kerr.InvalidProducerEpoch, sinks.Unavailable}, {kerr.ProducerFenced, sinks.Unavailable},
		{kerr.InvalidTxnState, sinks.Unknown},
	} {
		for _, order := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/ordered=%v", c.err.Message, order), func(t *testing.T) {
				t.Parallel()
				cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
				s := open(t, cluster.ListenAddrs()[0])
				batch := ordered("a", 6)
				for i := range batch {
					batch[i].Ordered = order
				}
				accepted(t, publish(t, s, batch[:1]))
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: c.err, Count: 1})
				outcome := c.outcome
				if !order {
					outcome = sinks.Unknown
				}
				wantAll(t, publish(t, s, batch[1:3]), outcome, sinks.ScopeAddress)
				accepted(t, publish(t, s, batch[3:5]))
				accepted(t, publish(t, s, batch[5:]))
			})
		}
	}
}

// TestOnlyOrderedBatchesAreStamped, and without one no producer id is asked for.
func TestOnlyOrderedBatchesAreStamped(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b"))
	questions := count(cluster, kmsg.InitProducerID)
	var mu sync.Mutex
	producers := map[string][]int64{}
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			var b kmsg.RecordBatch
			_ = b.ReadFrom(topic.Partitions[0].Records)
			producers[topic.Topic] = append(producers[topic.Topic], b.ProducerID)
		}
		return nil, nil, false
	})
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 3)))
	if n := questions.Load(); n != 0 {
		t.Errorf("%d questions for a producer id, want none", n)
	}
	for range 3 {
		accepted(t, publish(t, s, append(ordered("a", 3), messages("b", 3)...)))
	}
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(producers["a"][0], producers["b"]); got != "-1 [-1 -1 -1]" || producers["a"][1] < 0 || producers["a"][3] != producers["a"][1] || questions.Load() != 1 {
		t.Errorf("producers %v with %d questions", producers, questions.Load())
	}
}

// TestNoProducerID: without the right to one nothing ordered is sent, the reason is given, and nobody else suffers, not
// even in the same partition. When the right is there it goes on.
func TestNoProducerID(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: 1})
	s := open(t, cluster.ListenAddrs()[0])
	batch := append(append(messages("a", 3), ordered("a", 6)[3:]...), messages("b", 2)...)
	results := publish(t, s, batch)
	want(t, results, 0, 3, sinks.Accepted, sinks.ScopeMessage)
	want(t, results, 3, 6, sinks.Unavailable, sinks.ScopeAddress)
	want(t, results, 6, 8, sinks.Accepted, sinks.ScopeMessage)
	if err := results[3].Err; !errors.Is(err, kafkago.ClusterAuthorizationFailed) || !strings.Contains(err.Error(), "IdempotentWrite") {
		t.Errorf("got %v", err)
	}
	accepted(t, publish(t, s, batch[3:6]))
	wantLog(t, cluster.ListenAddrs()[0], "a", 0, 1, 2, 3, 4, 5)
}

// TestNoSuchAPI: a broker that knows no producer ids says so by its versions.
func TestNoSuchAPI(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	cluster.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key, most := range map[kmsg.Key]int16{kmsg.Produce: 8, kmsg.Metadata: 8, kmsg.ApiVersions: 2} {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(key), MinVersion: 0, MaxVersion: most})
		}
		return resp, nil, true
	})
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 2)))
	results := publish(t, s, ordered("a", 2))
	wantAll(t, results, sinks.Unavailable, sinks.ScopeAddress)
	if err := results[0].Err; !errors.Is(err, errNoAPI) {
		t.Errorf("got %v", err)
	}
}

// TestBrokerIsLoading: it has no producer id to give for a moment.
func TestBrokerIsLoading(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 3})
	accepted(t, publish(t, open(t, cluster.ListenAddrs()[0]), ordered("a", 2)))
}

// TestKeysSideBySide: batches of different keys are on their way to one partition at once; a key whose last attempt has
// no word waits for whoever settles it.
func TestKeysSideBySide(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	held := silent(cluster)
	s := open(t, cluster.ListenAddrs()[0])
	var all sync.WaitGroup
	for n := range 5 {
		batch := keyed(ordered("a", 1), fmt.Sprint(n))
		all.Go(func() { wantAll(t, publishIn(t, s, batch, 2*time.Second), sinks.Unknown, sinks.ScopeSink) })
	}
	until(t, "five requests are on their way", func() bool { return held.Load() == 5 })
	all.Wait()
	same := keyed(ordered("a", 1), "3")
	all.Go(func() { wantAll(t, publishIn(t, s, same, 2*time.Second), sinks.Unknown, sinks.ScopeSink) })
	until(t, "the sixth is", func() bool { return held.Load() == 6 })
	wantAll(t, publishIn(t, s, same, 200*time.Millisecond), sinks.Unavailable, sinks.ScopeMessage)
	all.Wait()
	if n := held.Load(); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}
}

// TestSequencesAreBounded: after many attempts without a word those in doubt are used again.
func TestSequencesAreBounded(t *testing.T) {
	t.Parallel()
	s := newSequencer(nil)
	at := place{"a", 0}
	for n := range uint64(1000) {
		q := s.free(at)
		s.unsure(q, digest(nil, nil), []uint64{n, n + 1})
		q.release()
	}
	if n := len(s.places[at].sequences); n != sequencesKept {
		t.Errorf("%d sequences, want %d", n, sequencesKept)
	}
	busy := s.places[at].doubts[1000]
	if !busy.try() {
		t.Fatal("somebody has the turn")
	}
	s.appended(busy, 1)
	if s.inDoubt(at, func() []uint64 { return []uint64{1000} })[1000] != nil || busy.doubts != 0 {
		t.Errorf("in doubt after it was appended")
	}
}

// TestNumbersRunOut: a sequence goes on with another producer id, which the other partitions share.
func TestNumbersRunOut(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1)
	s := newSequencer(open(t, cluster.ListenAddrs()[0]).cluster)
	take := func(at place) *sequence {
		q := s.free(at)
		if err := s.ready(t.Context(), q, nil); err != nil {
			t.Fatal(err)
		}
		q.release()
		return q
	}
	a, b := take(place{"a", 0}), take(place{"a", 1})
	old := a.next.producer
	if b.next.producer != old {
		t.Errorf("partitions have producers %d and %d", old, b.next.producer)
	}
	for name, wear := range map[string]func(q *sequence){
		"numbers":        func(q *sequence) { q.next.first = numbersUsed; s.appended(q, 1) },
		"epochs":         func(q *sequence) { q.next.epoch = epochsUsed + 1; s.appended(q, 1) },
		"the last epoch": func(q *sequence) { q.next.epoch = math.MaxInt16; q.raise() },
	} {
		old := a.next.producer
		wear(a)
		if take(place{"a", 0}); a.next.producer == old || a.next.first != 0 || a.next.epoch != 0 {
			t.Errorf("%s: %+v after producer %d", name, a.next, old)
		}
	}
	if b.next.producer != old {
		t.Errorf("the other partition has changed its producer")
	}
	b.retire()
	if take(place{"a", 1}); b.next.producer != a.next.producer {
		t.Errorf("producers %d and %d, want the one that was asked for last", a.next.producer, b.next.producer)
	}
}

// TestForgottenPartitions come back with other producer ids: the old numbers must not be used again.
func TestForgottenPartitions(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1)
	s := newSequencer(open(t, cluster.ListenAddrs()[0]).cluster)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first := s.free(place{"a", 0})
	if err := s.ready(ctx, first, nil); err != nil {
		t.Fatal(err)
	}
	for i := range int32(placesKept) {
		s.places[place{"b", i}] = &numbering{}
	}
	s.places[place{"a", 0}].used = time.Now().Add(-2 * forgetAfter)
	s.free(place{"c", 0})
	if len(s.places) != 1 {
		t.Fatalf("%d partitions are remembered", len(s.places))
	}
	again := s.free(place{"a", 0})
	if err := s.ready(ctx, again, nil); err != nil || again.next.producer == first.next.producer {
		t.Errorf("producer %d again (%v)", again.next.producer, err)
	}
}

// TestDigest: what makes two batches the same.
func TestDigest(t *testing.T) {
	t.Parallel()
	one := ordered("a", 2)
	for name, c := range map[string]struct {
		change func(m *sinks.Message)
		same   bool
	}{
		"attempt": {func(m *sinks.Message) { m.Attempt++ }, true}, "id": {func(m *sinks.Message) { m.ID += "1" }, false},
		"replay": {func(m *sinks.Message) { m.Replay++ }, false}, "payload": {func(m *sinks.Message) { m.Payload = []byte("{}") }, false},
		"header": {func(m *sinks.Message) { m.Headers = []sinks.Header{{Name: "a", Text: "b"}} }, false},
		"key":    {func(m *sinks.Message) { m.Key = nil }, false}, "kind": {func(m *sinks.Message) { m.Kind += "x" }, false},
	} {
		other := ordered("a", 2)
		c.change(&other[1])
		if same := digest(one, []int{0, 1}) == digest(other, []int{0, 1}); same != c.same {
			t.Errorf("%s: the same is %v, want %v", name, same, c.same)
		}
	}
	if digest(one, []int{0, 1}) == digest(one, []int{0}) || digest(one, []int{0, 1}) == digest(one, []int{1, 0}) {
		t.Errorf("a part, or another order, is the same")
	}
}
