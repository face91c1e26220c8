package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// Benchmark measures messages a second at the batch sizes and numbers of callers that a relay has. open returns a sink
// on a working broker and a place to publish to; the benchmark closes the sink. An operation is one message; a message
// that isn't accepted fails the benchmark.
func Benchmark(b *testing.B, open func(b *testing.B) (sink sinks.Sink, address string)) {
	for _, size := range []int{512, 8 << 10} {
		for _, batch := range []int{1, 100, 500} {
			for _, callers := range []int{1, 4} {
				b.Run(fmt.Sprintf("bytes=%d/batch=%d/callers=%d", size, batch, callers), func(b *testing.B) {
					sink, address := open(b)
					b.Cleanup(func() { closeAfter(b, sink) })
					measure(b, sink, address, size, batch, callers)
				})
			}
		}
	}
}

func measure(b *testing.B, sink sinks.Sink, address string, size, batch, callers int) {
	payload := append(append([]byte(`{"text": "`), bytes.Repeat([]byte("x"), size-12)...), `"}`...)
	b.SetBytes(int64(size))
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for !b.Failed() {
				n := min(int64(batch), left.Add(-int64(batch))+int64(batch))
				if n <= 0 {
					return
				}
				messages := messages(address, int(n))
				for i := range messages {
					messages[i].Payload = payload
				}
				publishAll(b, sink, messages)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func publishAll(b *testing.B, sink sinks.Sink, batch []sinks.Message) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results := make([]sinks.Result, len(batch))
	sink.Publish(ctx, batch, results)
	for _, r := range results {
		if r.Outcome != sinks.Accepted {
			b.Errorf("got %v (%v), want accepted", r.Outcome, r.Err)
			return
		}
	}
}

func closeAfter(b *testing.B, sink sinks.Sink) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := sink.Close(ctx); err != nil {
		b.Errorf("Close: %v", err)
	}
}
