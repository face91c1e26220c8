package kafka

import (
	"math/rand/v2"
	"sync"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

// partitioner chooses one of ids for a key.
type partitioner interface {
	Balance(msg kafkago.Message, ids ...int) int
}

// partitioners by the name of the setting.
var partitioners = map[string]partitioner{
	"murmur2": kafkago.Murmur2Balancer{}, // Java's, and librdkafka's murmur2_random
	"crc32":   librdkafka{kafkago.CRC32Balancer{Consistent: true}},
	"fnv1a":   &kafkago.Hash{}, // Sarama's
}

// librdkafka is its default, consistent_random: there an empty key is no key.
type librdkafka struct{ kafkago.CRC32Balancer }

// keyless says whether a message has no key as far as partitions go. Where its order counts an empty key is one.
func keyless(p partitioner, m *sinks.Message) bool {
	if _, ok := p.(librdkafka); ok && m.Key != nil && *m.Key == "" {
		return !m.Ordered
	}
	return m.Key == nil
}

// Messages without a key go to one partition for a while, so that batches are large, and then to another, so that
// all partitions get some. These many, or these many bytes, is a while.
const (
	stickyMessages = 50
	stickyBytes    = 64 << 10
)

// sticky is where the keyless messages of one topic go at the moment. It lasts from batch to batch.
type sticky struct {
	mu       sync.Mutex
	started  bool
	at       int // index into the partitions
	messages int // left before it moves on
	bytes    int
}

// next returns the partition for a keyless message of that size, the first time a random one, then round and round.
// Partitions without a leader are stepped over as long as another has one.
func (s *sticky) next(l *layout, size int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.started:
		s.started = true
		s.restart(rand.IntN(len(l.ids)))
	case s.messages <= 0 || s.bytes <= 0:
		s.restart(s.at + 1)
	}
	for range l.ids {
		if s.at %= len(l.ids); l.leaders[l.ids[s.at]] >= 0 {
			break
		}
		s.restart(s.at + 1)
	}
	s.at %= len(l.ids)
	s.messages--
	s.bytes -= size
	return l.ids[s.at]
}

func (s *sticky) restart(at int) {
	s.at, s.messages, s.bytes = at, stickyMessages, stickyBytes
}

// layout is a topic as the cluster described it at one moment.
type layout struct {
	code    int16         // an error instead of the rest
	ids     []int         // partitions, sorted
	leaders map[int]int32 // by partition; -1: none
}
