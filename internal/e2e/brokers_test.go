package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
)

// seen is a message as a consumer sees it. Headers are in their text form.
type seen struct {
	id, kind, attempt string
	key               *string
	headers           map[string]string
	payload           []byte
}

// outlet is a place on a broker of the test's own, with a consumer that isn't the relay's client.
type outlet struct {
	to       string   // as a route writes it
	settings settings // what a relay needs to reach the broker
	read     func(t *testing.T, done func([]seen) bool) []seen
	waiting  func(t *testing.T) int // how many messages it has, of those that nobody has taken away
}

// quiet is how long nothing comes before a consumer believes that it has everything.
const quiet = 500 * time.Millisecond

// kafkaOutlet makes a topic. addr is what the relay is given, "" for the broker itself.
func kafkaOutlet(t *testing.T, addr string) outlet {
	t.Helper()
	return kafkaOutletOn(t, services.Kafka(t), addr)
}

func kafkaOutletOn(t *testing.T, broker, addr string) outlet {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	topic := "e2e-" + name(t)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 6, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = kadm.NewClient(cl).DeleteTopic(context.Background(), topic)
		cl.Close()
	})
	if addr == "" {
		addr = broker
	}
	return outlet{
		to: "kafka:" + topic, settings: settings{"KAFKA_BROKERS": addr},
		read: func(t *testing.T, done func([]seen) bool) []seen { return readKafka(t, broker, topic, done) },
		waiting: func(t *testing.T) (n int) {
			t.Helper()
			ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
			if err == nil {
				err = ends.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
			ends.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
			return n
		},
	}
}

// readKafka reads a topic. brokers are as a relay is given them.
func readKafka(t *testing.T, brokers, topic string, done func([]seen) bool) []seen {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return collect(done, func(ctx context.Context) (out []seen) {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			out = append(out, own(stage.FromKafka(r)))
		})
		return out
	})
}

// rabbitOutlet makes an exchange with a queue bound to it. addr replaces host and port for the relay, unless empty.
func rabbitOutlet(t *testing.T, addr string) outlet {
	t.Helper()
	return rabbitOutletOn(t, services.RabbitMQ(t), addr)
}

func rabbitOutletOn(t *testing.T, url, addr string) outlet {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := "e2e-" + name(t)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare(queue, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(queue, "#", queue, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = ch.QueueDelete(queue, false, false, false)
		_ = ch.ExchangeDelete(queue, false, false)
		_ = conn.Close()
	})
	given := url
	if addr != "" {
		u, err := amqp.ParseURI(url)
		if err != nil {
			t.Fatal(err)
		}
		given = strings.Replace(url, fmt.Sprintf("%s:%d", u.Host, u.Port), addr, 1)
	}
	return outlet{
		to: "rabbitmq:" + queue + "/a.b", settings: settings{"RABBITMQ_URL": given},
		read: func(t *testing.T, done func([]seen) bool) []seen { return readRabbit(t, url, queue, done) },
		waiting: func(t *testing.T) int {
			t.Helper()
			q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			return q.Messages
		},
	}
}

func readRabbit(t *testing.T, url, queue string, done func([]seen) bool) []seen {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	in, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return collect(done, func(ctx context.Context) (out []seen) {
		for len(out) < 1000 {
			select {
			case d := <-in:
				out = append(out, own(stage.FromRabbitMQ(d)))
			case <-ctx.Done():
				return out
			}
		}
		return out
	})
}

// sqsOutlet makes a standard queue. addr replaces the endpoint's host and port for the relay, unless empty.
func sqsOutlet(t *testing.T, addr string) outlet {
	t.Helper()
	endpoint := services.SQS(t)
	transport := &http.Transport{}
	cl := sqs.New(sqs.Options{HTTPClient: &http.Client{Transport: transport}, BaseEndpoint: &endpoint, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
	q, err := cl.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("e2e-" + name(t)), Attributes: map[string]string{"VisibilityTimeout": "15"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = cl.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: q.QueueUrl})
		transport.CloseIdleConnections()
	})
	given := endpoint
	if addr != "" {
		given = "http://" + addr
	}
	return outlet{
		to: "sqs:e2e-" + name(t), settings: settings{"SQS_ENDPOINT": given, "SQS_REGION": "us-east-1"},
		read: func(t *testing.T, done func([]seen) bool) []seen {
			received := map[string]bool{}
			return collect(done, func(context.Context) []seen { return readSQS(cl, q.QueueUrl, received) })
		},
		waiting: func(t *testing.T) int { return waitingSQS(t, cl, q.QueueUrl) },
	}
}

// readSQS receives with eight callers at once. Messages of a reply that is lost on its way come again after the
// visibility timeout, and so do those whose deletion is lost: received holds the queue's own ids, which tell that from a
// message that was sent twice.
func readSQS(cl *sqs.Client, queue *string, received map[string]bool) (out []seen) {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			got, err := cl.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
			if err != nil || len(got.Messages) == 0 {
				return
			}
			var entries []types.DeleteMessageBatchRequestEntry
			for i, m := range got.Messages {
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
			}
			_, _ = cl.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: entries})
			mu.Lock()
			defer mu.Unlock()
			for _, m := range got.Messages {
				if !received[*m.MessageId] {
					received[*m.MessageId] = true
					out = append(out, fromSQS(m))
				}
			}
		})
	}
	callers.Wait()
	return out
}

func waitingSQS(t *testing.T, cl *sqs.Client, queue *string) int {
	t.Helper()
	const messages = types.QueueAttributeNameApproximateNumberOfMessages
	got, err := cl.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: []types.QueueAttributeName{messages}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(got.Attributes[string(messages)])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func fromSQS(m types.Message) seen { return own(stage.FromSQS(m)) }

// own takes what belongs to the relay out of the headers.
func own(m stage.Message) seen {
	s := seen{id: m.Headers["relay-id"], kind: m.Headers["relay-kind"], attempt: m.Headers["relay-attempt"], key: m.Key, headers: m.Headers, payload: m.Payload}
	for k := range s.headers {
		if strings.HasPrefix(k, "relay-") {
			delete(s.headers, k)
		}
	}
	return s
}

// collect polls until done and quiet, or until nothing has come for long.
func collect(done func([]seen) bool, poll func(ctx context.Context) []seen) []seen {
	var all []seen
	for last := time.Now(); time.Since(last) < generous; {
		ctx, cancel := context.WithTimeout(context.Background(), quiet/5)
		got := poll(ctx)
		cancel()
		if len(got) > 0 {
			last = time.Now()
			all = append(all, got...)
		} else if time.Since(last) > quiet && done(all) {
			break
		}
	}
	return all
}

// run tells this run's names from those of runs before it on the same brokers.
var run = strconv.FormatInt(time.Now().UnixNano(), 36)

// name is a short name for things on brokers, of this test and broker alone.
func name(t *testing.T) string {
	short := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	return short[:min(len(short), 40)] + "-" + run
}
