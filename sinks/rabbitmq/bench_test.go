package rabbitmq

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// bounded keeps a queue that nobody reads from growing.
var bounded = amqp.Table{"x-max-length": int32(10_000)}

func BenchmarkSink(b *testing.B) {
	sinktest.Benchmark(b, func(b *testing.B) (sinks.Sink, string) {
		url := services.RabbitMQ(b)
		return openUnclosed(b, url, nil), "/" + (broker{b, url}).queue(bounded)
	})
}

// BenchmarkWindow shows what the window and the gathering of writes are worth: messages of 512 bytes on one connection.
// client-µs is the processor time of this process a message.
func BenchmarkWindow(b *testing.B) {
	for _, window := range []int{1, 10, 100, 1000, 5000} {
		for _, direct := range []bool{false, true} {
			b.Run(fmt.Sprintf("window=%d/gather=%v", window, !direct), func(b *testing.B) {
				url := services.RabbitMQ(b)
				s := open(b, url, map[string]string{"CONNECTIONS": "1", "WINDOW": fmt.Sprint(window)})
				s.dialer.direct = direct
				address := "/" + (broker{b, url}).queue(bounded)
				measure(b, s, address, min(2*window+100, 5000))
			})
		}
	}
}

func measure(b *testing.B, s *sink, address string, size int) {
	batch := messages(size, address)
	payload := []byte(`"` + strings.Repeat("x", 510) + `"`)
	for i := range batch {
		batch[i].Payload = payload
	}
	results := make([]sinks.Result, len(batch))
	s.Publish(b.Context(), batch[:1], results[:1])
	before := cpu()
	b.ResetTimer()
	for left := b.N; left > 0; left -= len(batch) {
		n := min(left, len(batch))
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		s.Publish(ctx, batch[:n], results[:n])
		cancel()
		wantAll(b, results[:n], sinks.Accepted, 0)
		clear(results)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "client-µs/message")
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
