package bench

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	sinkdiscard "github.com/jobrelay/relay/sinks/discard"
	sinkkafka "github.com/jobrelay/relay/sinks/kafka"
	sinkrabbitmq "github.com/jobrelay/relay/sinks/rabbitmq"
	sinksqs "github.com/jobrelay/relay/sinks/sqs"
)

// open makes a sink as the deployed relay does, from its environment.
func open(b testing.TB, t sinks.Type, env map[string]string) sinks.Sink {
	b.Helper()
	s := t.Settings()
	if problems := config.Decode(config.Environ(env), "", s); len(problems) > 0 {
		b.Fatal(problems)
	}
	sink, err := s.Open(t.Name, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sink.Close(context.Background()) })
	return sink
}

func name() string { return "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

func discard(b testing.TB) target { return target{sink: open(b, sinkdiscard.Type(), nil)} }

func kafka(b testing.TB) target {
	b.Helper()
	addr, topic := services.Kafka(b), name()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(context.Background(), 12, 1, nil, topic); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_, _ = kadm.NewClient(cl).DeleteTopic(context.Background(), topic)
		cl.Close()
	})
	return target{sink: open(b, sinkkafka.Type(), map[string]string{"BROKERS": addr}), address: topic}
}

func rabbitmq(b testing.TB) target {
	b.Helper()
	url, queue := services.RabbitMQ(b), name()
	conn, err := amqp.Dial(url)
	if err != nil {
		b.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_, _ = ch.QueueDelete(queue, false, false, false)
		_ = conn.Close()
	})
	return target{sink: open(b, sinkrabbitmq.Type(), map[string]string{"URL": url}), address: "/" + queue}
}

func sqs(b testing.TB) target { return sqsQueue(b, name(), nil) }

func fifo(b testing.TB) target {
	return sqsQueue(b, name()+".fifo", map[string]string{"FifoQueue": "true"})
}

func sqsQueue(b testing.TB, queue string, attributes map[string]string) target {
	b.Helper()
	endpoint := services.SQS(b)
	b.(interface{ Setenv(k, v string) }).Setenv("AWS_ACCESS_KEY_ID", "bench")
	b.(interface{ Setenv(k, v string) }).Setenv("AWS_SECRET_ACCESS_KEY", "bench")
	cl := awssqs.New(awssqs.Options{BaseEndpoint: &endpoint, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
	q, err := cl.CreateQueue(context.Background(), &awssqs.CreateQueueInput{QueueName: aws.String(queue), Attributes: attributes})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = cl.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: q.QueueUrl}) })
	return target{sink: open(b, sinksqs.Type(), map[string]string{"ENDPOINT": endpoint, "REGION": "us-east-1"}), address: queue}
}

// TestBenchmarksRun keeps the benchmarks from rotting: each once, small.
func TestBenchmarksRun(t *testing.T) {
	services.Postgres(t)
	defer func(jobs, rounds int) { size.jobs, size.rounds = jobs, rounds }(size.jobs, size.rounds)
	size.jobs, size.rounds = 2000, 1
	for name, f := range map[string]func(*testing.B){"discard": BenchmarkDiscard, "kafka": BenchmarkKafka, "rabbitmq": BenchmarkRabbitMQ, "sqs": BenchmarkSQS, "latency": BenchmarkLatency, "order": BenchmarkOrder, "long key": BenchmarkLongKey} {
		if r := testing.Benchmark(f); r.N == 0 {
			t.Errorf("benchmark %s failed", name)
		}
	}
}
