package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/sinks"
)

// backlog is what a relay has to send: by key, in order. A key is in the hands of one worker at a time.
type backlog struct {
	mu    sync.Mutex
	keys  map[string][]sinks.Message
	alone map[string]bool // its last attempt had no word: the next message goes by itself
	busy  map[string]bool
	left  int
}

func newBacklog(topic string, keys, each int) *backlog {
	b := &backlog{keys: map[string][]sinks.Message{}, alone: map[string]bool{}, busy: map[string]bool{}, left: keys * each}
	batch := ordered(topic, keys*each)
	for i := range batch {
		key := fmt.Sprintf("key-%d", i%keys)
		batch[i].Key = &key
		b.keys[key] = append(b.keys[key], batch[i])
	}
	return b
}

// take returns runs of some keys that nobody has, or of one whose next message must go alone.
func (b *backlog) take(most int) (batch []sinks.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, ms := range b.keys { // in random order
		switch {
		case b.busy[key] || len(ms) == 0 || len(batch) >= most:
		case b.alone[key]:
			if len(batch) == 0 {
				b.busy[key] = true
				return slices.Clone(ms[:1])
			}
		default:
			b.busy[key] = true
			batch = append(batch, ms[:min(len(ms), 1+rand.IntN(5))]...)
		}
	}
	return batch
}

// settle takes off what was accepted, up to the first of a key that wasn't.
func (b *backlog) settle(t *testing.T, batch []sinks.Message, results []sinks.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stopped := map[string]bool{}
	for i, m := range batch {
		key := *m.Key
		delete(b.busy, key)
		switch r := results[i]; {
		case r.Outcome == sinks.Accepted && stopped[key]:
			t.Errorf("message %s was accepted behind one that wasn't", m.ID)
		case r.Outcome == sinks.Accepted:
			b.keys[key], b.alone[key] = b.keys[key][1:], false
			b.left--
		case r.Outcome == sinks.Rejected || r.Outcome == sinks.Failed:
			t.Errorf("message %s: %v (%v)", m.ID, r.Outcome, r.Err)
		default:
			stopped[key] = true
			b.alone[key] = b.alone[key] || r.Outcome == sinks.Unknown
		}
	}
}

func (b *backlog) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == 0
}

// TestOrderSurvives what a network and brokers can do to requests of several workers: they are kept back and let through
// at any time later, or appended and answered as if they weren't. Of each key the first copies arrive in order, and
// nothing of a message arrives when the next one that was sent after it is there.
func TestOrderSurvives(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	const keys, each, workers, timeout = 12, 40, 4, 300 * time.Millisecond
	work := newBacklog(topic, keys, each)
	h.holdIf(func() bool {
		if rand.IntN(8) == 0 {
			h.recode = append(h.recode, []kafkago.Error{kafkago.NotLeaderForPartition, kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend}[rand.IntN(3)])
		}
		return rand.IntN(8) == 0
	})
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for end := time.Now().Add(time.Minute); !work.done() && time.Now().Before(end); {
				batch := work.take(20)
				if len(batch) == 0 {
					time.Sleep(time.Millisecond)
					continue
				}
				work.settle(t, batch, publishIn(t, s, batch, timeout))
				h.letThrough(t, topic, timeout+time.Duration(rand.IntN(500))*time.Millisecond)
			}
		})
	}
	all.Wait()
	if !work.done() {
		t.Fatalf("%d messages are left", work.left)
	}
	h.letThrough(t, topic, 0)
	wantOrder(t, readAll(t, h.broker, topic, keys*each), keys, each)
}

// wantOrder compares the first and the last copies of each key's messages with their order.
func wantOrder(t *testing.T, records []*kgo.Record, keys, each int) {
	t.Helper()
	first, last := map[string][]int{}, map[string][]int{}
	seen := map[int]bool{}
	for _, r := range records {
		n, key := number(received(r).ID), string(r.Key)
		if !seen[n] {
			first[key] = append(first[key], n)
		}
		seen[n] = true
		last[key] = append(slices.DeleteFunc(last[key], func(m int) bool { return m == n }), n)
	}
	if len(seen) != keys*each {
		t.Errorf("%d of %d messages arrived", len(seen), keys*each)
	}
	for key := range first {
		if !slices.IsSorted(first[key]) || !slices.IsSorted(last[key]) {
			t.Errorf("%s: first copies %v, last copies %v", key, first[key], last[key])
		}
	}
	t.Logf("%d copies of %d messages", len(records), len(seen))
}
