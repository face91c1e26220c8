package kafka

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// BenchmarkSuite measures the sink alone, as all sinks are measured.
func BenchmarkSuite(b *testing.B) {
	broker := services.Kafka(b)
	sinktest.Benchmark(b, func(b *testing.B) (sinks.Sink, string) {
		return openUnclosed(b, broker, nil), newTopic(b, broker, 12)
	})
}

const (
	rowsPerBatch = 1000
	rowBytes     = 512
)

// contender sends one batch of rowsPerBatch messages.
type contender struct {
	name string
	send func(ctx context.Context, batch []sinks.Message) error
}

// contestBrokers are those that the ways to send a batch are compared on.
var contestBrokers = []struct {
	name string
	addr func(b *testing.B) string
}{
	{"fake", func(b *testing.B) string { return fake(b, 1, kfake.BlackholeProduce()).ListenAddrs()[0] }},
	{"fake-10ms", func(b *testing.B) string {
		return fake(b, 1, kfake.BlackholeProduce(), kfake.ListenFn(delayed(10*time.Millisecond))).ListenAddrs()[0]
	}},
	{"real", func(b *testing.B) string { return services.Kafka(b) }},
}

// BenchmarkOrdered measures batches whose order counts beside the same whose order doesn't, in turns. ordered:unordered is
// the share of the speed that is left.
func BenchmarkOrdered(b *testing.B) {
	for _, broker := range contestBrokers {
		for _, callers := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("%s/callers=%d", broker.name, callers), func(b *testing.B) {
				addr := broker.addr(b)
				topic := newTopic(b, addr, 12)
				s := open(b, addr)
				beside(b, topic, []contender{
					{"ordered", func(ctx context.Context, batch []sinks.Message) error {
						batch = slices.Clone(batch)
						for i := range batch {
							batch[i].Ordered = true
						}
						return viaSink(ctx, s, batch)
					}},
					{"unordered", func(ctx context.Context, batch []sinks.Message) error { return viaSink(ctx, s, slices.Clone(batch)) }},
				}, callers)
			})
		}
	}
}

// BenchmarkBeside measures the sink beside other ways to send the same batch, in turns, so that what else the machine
// does weighs on all of them alike. The metrics are messages a second of each, and the sink's share of each.
func BenchmarkBeside(b *testing.B) {
	for _, broker := range contestBrokers {
		for _, codec := range []string{"none", "lz4"} {
			for _, callers := range []int{1, 4, 8} {
				b.Run(fmt.Sprintf("%s/%s/callers=%d", broker.name, codec, callers), func(b *testing.B) {
					addr := broker.addr(b)
					topic := newTopic(b, addr, 12)
					beside(b, topic, contenders(b, addr, topic, codec), callers)
				})
			}
		}
	}
}

func beside(b *testing.B, topic string, all []contender, callers int) {
	spent := make([]time.Duration, len(all))
	payload := bytes.Repeat([]byte(`{"order": 4711, "text": "lorem ipsum"} `), rowBytes/39+1)[:rowBytes]
	batch := spreadOut(messages(topic, rowsPerBatch))
	for i := range batch {
		batch[i].Payload = payload
	}
	round := func(c contender) time.Duration {
		start := time.Now()
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := c.send(ctx, batch); err != nil {
					b.Errorf("%s: %v", c.name, err)
				}
			})
		}
		done.Wait()
		return time.Since(start)
	}
	for _, c := range all {
		round(c) // connections and metadata
	}
	rounds := 0
	for b.Loop() {
		for i, c := range all {
			spent[i] += round(c)
		}
		rounds++
	}
	for i, c := range all {
		b.ReportMetric(float64(rounds*callers*rowsPerBatch)/spent[i].Seconds(), c.name+"/s")
		if i > 0 {
			b.ReportMetric(float64(spent[i])/float64(spent[0]), all[0].name+":"+c.name)
		}
	}
}

func contenders(b *testing.B, addr, topic, codec string) []contender {
	s := open(b, addr, map[string]string{"COMPRESSION": codec, "MAX_IN_FLIGHT": "16"})
	transport := &kafkago.Transport{MetadataTopics: []string{topic}}
	b.Cleanup(transport.CloseIdleConnections)
	compression := map[string]compress.Compression{"none": 0, "lz4": compress.Lz4}[codec]
	w := &kafkago.Writer{
		Addr: kafkago.TCP(addr), Topic: topic, Balancer: kafkago.Murmur2Balancer{}, RequiredAcks: kafkago.RequireAll,
		BatchSize: rowsPerBatch, BatchTimeout: time.Millisecond, Compression: compression, Transport: transport,
	}
	b.Cleanup(func() { w.Close() })
	return []contender{
		{"sink", func(ctx context.Context, batch []sinks.Message) error { return viaSink(ctx, s, batch) }},
		{"writer", func(ctx context.Context, batch []sinks.Message) error {
			out := make([]kafkago.Message, len(batch))
			for i := range batch {
				out[i] = kafkago.Message{Key: []byte(*batch[i].Key), Value: batch[i].Payload, Headers: headersOf(&batch[i])}
			}
			return w.WriteMessages(ctx, out...)
		}},
		{"encoder", func(ctx context.Context, batch []sinks.Message) error {
			return roundTrip(ctx, transport, addr, viaKafkaGo(topic, batch, compression))
		}},
		{"bare", bare(b, s, transport, addr, topic)},
	}
}

func viaSink(ctx context.Context, s sinks.Sink, batch []sinks.Message) error {
	results := make([]sinks.Result, len(batch))
	s.Publish(ctx, batch, results)
	for _, r := range results {
		if r.Outcome != sinks.Accepted {
			return r.Err
		}
	}
	return nil
}

func headersOf(m *sinks.Message) []kafkago.Header {
	return []kafkago.Header{
		{Key: sinks.HeaderID, Value: []byte(m.ID)}, {Key: sinks.HeaderKind, Value: []byte(m.Kind)},
		{Key: sinks.HeaderAttempt, Value: []byte("1")}, {Key: sinks.HeaderTime, Value: []byte(m.Time.Format(sinks.TimeFormat))},
	}
}

func roundTrip(ctx context.Context, t *kafkago.Transport, addr string, req kafkago.Request) error {
	reply, err := t.RoundTrip(ctx, kafkago.TCP(addr), req)
	if err != nil {
		return err
	}
	for _, topic := range reply.(*produce.Response).Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				return codeError(p.ErrorCode, p.ErrorMessage)
			}
		}
	}
	return nil
}

// viaKafkaGo groups as the sink does, and has kafka-go encode the records.
func viaKafkaGo(topic string, batch []sinks.Message, c compress.Compression) *produce.Request {
	records := make([][]protocol.Record, 12)
	ids := layoutOf(12).ids
	for i := range batch {
		m := &batch[i]
		at := partitioners["murmur2"].Balance(kafkago.Message{Key: []byte(*m.Key)}, ids...)
		records[at] = append(records[at], protocol.Record{
			Time: time.Now(), Key: protocol.NewBytes([]byte(*m.Key)), Value: protocol.NewBytes(m.Payload), Headers: headersOf(m),
		})
	}
	req := &produce.Request{Acks: -1, Timeout: 10_000, Topics: []produce.RequestTopic{{Topic: topic}}}
	for at, r := range records {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, produce.RequestPartition{
			Partition: int32(at), RecordSet: protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(c), Records: protocol.NewRecordReader(r...)},
		})
	}
	return req
}

// bare sends a request that was encoded before: what is left is the way there, the broker and the way back.
func bare(b *testing.B, s *sink, t *kafkago.Transport, addr, topic string) func(context.Context, []sinks.Message) error {
	var once sync.Once
	var parts [12][]byte
	return func(ctx context.Context, batch []sinks.Message) error {
		once.Do(func() {
			e := s.encoders.New().(*encoder)
			for at := range parts {
				var index []int
				for i := range batch {
					if partitionOf(s.partitioner, *batch[i].Key, 12) == at {
						index = append(index, i)
					}
				}
				raw, err := e.appendBatch([]byte{0, 0, 0, 0}, batch, index, time.Now(), unstamped)
				if err != nil {
					b.Error(err)
				}
				endFrame(raw)
				parts[at] = raw
			}
		})
		req := &rawproduce.Request{Acks: -1, Timeout: 10_000, Topics: []rawproduce.RequestTopic{{Topic: topic}}}
		for at, raw := range parts {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, rawproduce.RequestPartition{
				Partition: int32(at), RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(raw)},
			})
		}
		return roundTrip(ctx, t, addr, req)
	}
}

// delayed listens with connections on which every answer takes a while.
func delayed(d time.Duration) func(network, address string) (net.Listener, error) {
	return func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return slowListener{l, d}, err
	}
}

type slowListener struct {
	net.Listener
	delay time.Duration
}

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return slowConn{c, l.delay}, err
}

type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(c.delay)
	return c.Conn.Write(b)
}

// BenchmarkEncode is the encoder alone.
func BenchmarkEncode(b *testing.B) {
	batch := spreadOut(messages("t", rowsPerBatch))
	fill(batch, rowBytes)
	for name, codec := range codecs {
		b.Run(name, func(b *testing.B) {
			e := &encoder{codec: codec}
			var dst []byte
			index := all(rowsPerBatch)
			b.ReportAllocs()
			b.SetBytes(rowsPerBatch * rowBytes)
			for b.Loop() {
				dst, _ = e.appendBatch(dst[:0], batch, index, sent, unstamped)
			}
		})
	}
}
