package kafka

import (
	"bufio"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestPanicInALane costs a duplicate at most, not the process: the lane runs in goroutines of the sink's own, where nobody
// else could recover. Other lanes' messages are accepted, and so are the next.
func TestPanicInALane(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 2, kfake.SeedTopics(8, "a"))
	s := open(t, cluster.ListenAddrs()[0])
	good := s.encoders.New
	var panics atomic.Int32
	s.encoders.New = func() any {
		if panics.Add(1) == 1 {
			panic("boom")
		}
		return good()
	}
	batch := messages("a", 100)
	for i := range batch {
		key := fmt.Sprint("key", i)
		batch[i].Key = &key
	}
	unknown := 0
	for _, r := range publish(t, s, batch) {
		if r.Outcome == sinks.Unknown && r.Err != nil {
			unknown++
		} else {
			want(t, []sinks.Result{r}, 0, 1, sinks.Accepted, sinks.ScopeMessage)
		}
	}
	if unknown == 0 || unknown == len(batch) {
		t.Errorf("%d of %d messages are unknown, want those of one of two lanes", unknown, len(batch))
	}
	accepted(t, publish(t, s, batch))
}

// bomb is a codec that panics at the second large batch.
type bomb struct {
	compress.Codec
	large *atomic.Int32
}

func (b bomb) NewWriter(w io.Writer) io.WriteCloser { return bombWriter{b.Codec.NewWriter(w), b.large} }

type bombWriter struct {
	io.WriteCloser
	large *atomic.Int32
}

func (w bombWriter) Write(b []byte) (int, error) {
	if len(b) > 500_000 && w.large.Add(1) == 2 {
		panic("boom")
	}
	return w.WriteCloser.Write(b)
}

// TestPanicInALaterRequest of a lane, when other queues of it are done already: what is left of that one is unknown, all else
// is accepted. With one lane, and with two, where nobody could recover but the lane.
func TestPanicInALaterRequest(t *testing.T) {
	t.Parallel()
	for _, brokers := range []int{1, 2} {
		cluster := fake(t, brokers, kfake.SeedTopics(8, "short"), kfake.SeedTopics(1, "long"))
		s := open(t, cluster.ListenAddrs()[0])
		large := new(atomic.Int32)
		s.encoders.New = func() any { return &encoder{codec: bomb{codecs["lz4"], large}} }
		batch := append(messages("long", 3), messages("short", 80)...)
		for i := range batch {
			if i < 3 {
				batch[i].Payload = make([]byte, 600_000)
			}
			key := fmt.Sprint("key", i)
			batch[i].Key = &key
		}
		results := publish(t, s, batch)
		want(t, results, 0, 1, sinks.Accepted, sinks.ScopeMessage)
		want(t, results, 1, 3, sinks.Unknown, sinks.ScopeMessage)
		accepted(t, results[3:])
		accepted(t, publish(t, s, batch))
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("boom") }

// TestPanicBeforeTheReply: the reply may come yet, so the connection isn't used again.
func TestPanicBeforeTheReply(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 1)))
	for _, p := range s.cluster.pools {
		for _, c := range p.idle {
			c.in = bufio.NewReader(panicking{})
		}
	}
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		time.Sleep(100 * time.Millisecond)
		return nil, nil, false
	})
	wantAll(t, publish(t, s, messages("a", 1)), sinks.Unknown, sinks.ScopeMessage)
	accepted(t, publish(t, s, messages("a", 1)))
}
