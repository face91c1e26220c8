package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/sinks"
)

func partitionOf(p partitioner, key string, n int) int {
	s := &sink{partitioner: p}
	t := &target{described: described{&topic{}, layoutOf(n)}}
	return (&publication{sink: s}).partition(t, &sinks.Message{Key: &key})
}

func layoutOf(n int) *layout {
	l := &layout{leaders: map[int]int32{}}
	for i := range n {
		l.ids, l.leaders[i] = append(l.ids, i), 0
	}
	return l
}

// TestB13KnownHashes compares with values of the Java client, Sarama and librdkafka.
func TestB13KnownHashes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		n    int
		want []int // of order-1, user-42, TT0124
	}{
		{"murmur2", 6, []int{4, 4, 4}}, {"murmur2", 15, []int{1, 10, 10}}, {"fnv1a", 6, []int{1, 3, 2}}, {"crc32", 15, []int{4, 10, 9}},
	} {
		for i, key := range []string{"order-1", "user-42", "TT0124"} {
			if got := partitionOf(partitioners[c.name], key, c.n); got != c.want[i] {
				t.Errorf("%s of %s mod %d: got %d, want %d", c.name, key, c.n, got, c.want[i])
			}
		}
	}
}

// TestMurmur2AsAnotherClient compares many keys with a second implementation of Java's partitioner.
func TestMurmur2AsAnotherClient(t *testing.T) {
	t.Parallel()
	other := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for i := range 5000 {
		key := fmt.Sprintf("%d-é-%x", i, i*7919)
		if got, want := partitionOf(partitioners["murmur2"], key, 17), other.Partition(&kgo.Record{Key: []byte(key)}, 17); got != want {
			t.Fatalf("key %s: got %d, want %d", key, got, want)
		}
	}
}

// TestB13EmptyKey: a key like any other, except for librdkafka.
func TestB13EmptyKey(t *testing.T) {
	t.Parallel()
	empty := sinks.Message{Key: new(string)}
	for name, want := range map[string]bool{"murmur2": false, "fnv1a": false, "crc32": true} {
		if got := keyless(partitioners[name], &empty); got != want {
			t.Errorf("%s takes an empty key for none: %v, want %v", name, got, want)
		}
		if !keyless(partitioners[name], &sinks.Message{}) {
			t.Errorf("%s takes no key for one", name)
		}
	}
}

// TestEmptyKeyStays in one partition: it's a key.
func TestEmptyKeyStays(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"murmur2", "fnv1a"} {
		first := partitionOf(partitioners[name], "", 50)
		for range 20 {
			if at := partitionOf(partitioners[name], "", 50); at != first {
				t.Fatalf("%s: partitions %d and %d", name, first, at)
			}
		}
	}
}

// TestB13KeylessSpread: runs of neighbours, and all partitions their share.
func TestB13KeylessSpread(t *testing.T) {
	t.Parallel()
	var s sticky
	l := layoutOf(6)
	l.leaders[2] = -1 // nobody leads it
	counts, runs, last := map[int]int{}, 0, -1
	for range 600 {
		at := s.next(l, 100)
		if counts[at]++; at != last {
			runs, last = runs+1, at
		}
	}
	if runs != 600/stickyMessages || len(counts) != 5 || counts[2] > 0 {
		t.Errorf("%d runs over partitions %v", runs, counts)
	}
	for range 20 {
		if s.next(l, stickyBytes); s.bytes > 0 {
			t.Fatal("large messages don't move on")
		}
	}
}

// TestKeylessWithoutAnyLeader ends, and with fewer partitions than before as well.
func TestKeylessWithoutAnyLeader(t *testing.T) {
	t.Parallel()
	var s sticky
	l := layoutOf(9)
	for i := range 9 {
		l.leaders[i] = -1
	}
	for range 200 {
		if at := s.next(l, 1); at < 0 || at > 8 {
			t.Fatalf("partition %d", at)
		}
	}
	for range 200 {
		if at := s.next(layoutOf(1), 1); at != 0 {
			t.Fatalf("partition %d of one", at)
		}
	}
}
