package sqs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

func TestMain(m *testing.M) {
	// No test may depend on, or use, what the machine knows of AWS.
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, settings Settings) sinks.Sink {
	t.Helper()
	s, err := settings.Open("sqs", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestElasticMQ(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, elasticMQ(t, ""))
}

func TestElasticMQFIFO(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, elasticMQ(t, ".fifo"))
}

func TestFake(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, faked(newFake(t, func(*fake) {}), ""))
}

func TestFakeFIFO(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, faked(newFake(t, func(f *fake) { f.limit = 256 << 10 }), ".fifo"))
}

// harness has what both servers have in common.
func harness(endpoint string, suffix string, largest int) sinktest.Harness {
	at := func(endpoint string) Settings { return Settings{Endpoint: endpoint, Region: "us-east-1"} }
	h := sinktest.Harness{
		Open:         func(t *testing.T) sinks.Sink { return open(t, at(endpoint)) },
		Missing:      func(*testing.T) string { return queueNameFor("missing", suffix) },
		Away:         func(t *testing.T) sinks.Sink { return open(t, at("http://127.0.0.1:1")) },
		TooLarge:     largest,
		RefusesEmpty: true,
		TextHeaders:  true,
		Unordered:    suffix == "",
		Refused: map[string]func(*sinks.Message){
			"no name":       func(m *sinks.Message) { m.Address = "" },
			"strange name":  func(m *sinks.Message) { m.Address = "a queue!" + suffix },
			"long name":     func(m *sinks.Message) { m.Address = strings.Repeat("q", 81) },
			"braces":        func(m *sinks.Message) { m.Address = "orders-{x y/ä}" + suffix },
			"URL with none": func(m *sinks.Message) { m.Address = "https://sqs.eu-west-1.amazonaws.com/" },
		},
	}
	return h
}

// withOutage adds a line to the server, once the harness can make queues.
func withOutage(h sinktest.Harness, endpoint string) sinktest.Harness {
	h.Outage = func(t *testing.T) (sinks.Sink, string, sinktest.Line) {
		p := sinktest.NewProxy(t, strings.TrimPrefix(endpoint, "http://"))
		return open(t, Settings{Endpoint: "http://" + p.Addr(), Region: "us-east-1"}), h.Address(t), p
	}
	return h
}

var queuesMade atomic.Int64

func queueNameFor(what, suffix string) string {
	return fmt.Sprintf("relay-%s-%d-%d%s", what, os.Getpid(), queuesMade.Add(1), suffix)
}

func elasticMQ(t testing.TB, suffix string) sinktest.Harness {
	endpoint := services.SQS(t)
	h := harness(endpoint, suffix, 256<<10)
	h.Address = func(t *testing.T) string { return createQueue(t, testClient(t, endpoint), suffix) }
	h.Read = func(t *testing.T, address string, n int) []sinktest.Received {
		return receive(t, testClient(t, endpoint), address, n)
	}
	return withOutage(h, endpoint)
}

// testClient is one of the tests, whose connections end with the test.
func testClient(t testing.TB, endpoint string) *awssqs.Client {
	pool := &http.Transport{}
	t.Cleanup(pool.CloseIdleConnections)
	return awssqs.New(awssqs.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""),
		HTTPClient: &http.Client{Transport: pool},
	})
}

func createQueue(t testing.TB, c *awssqs.Client, suffix string) string {
	t.Helper()
	name := queueNameFor("test", suffix)
	in := &awssqs.CreateQueueInput{QueueName: &name}
	if suffix != "" {
		in.Attributes = map[string]string{"FifoQueue": "true"}
	}
	out, err := c.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	t.Cleanup(func() {
		_, _ = c.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	return name
}

// receive takes messages out of a queue until there are n and none came for a moment, or none for long. A message whose reply was lost on
// the way to us becomes visible again; SQS's own id tells it from one that was sent twice.
func receive(t testing.TB, c *awssqs.Client, queue string, n int) (all []sinktest.Received) {
	t.Helper()
	u, err := c.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatalf("read %s: %v", queue, err)
	}
	seen, last := map[string]bool{}, time.Now()
	for time.Since(last) < 40*time.Second && (len(all) < n || time.Since(last) < 300*time.Millisecond) {
		out, err := c.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: u.QueueUrl, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, VisibilityTimeout: 15})
		if err != nil {
			t.Fatalf("read %s: %v", queue, err)
		}
		if len(out.Messages) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		last = time.Now()
		var done []types.DeleteMessageBatchRequestEntry
		for i, m := range out.Messages {
			if !seen[*m.MessageId] {
				seen[*m.MessageId] = true
				all = append(all, consumed(t, *m.Body, stringValues(m.MessageAttributes)))
			}
			done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := c.DeleteMessageBatch(t.Context(), &awssqs.DeleteMessageBatchInput{QueueUrl: u.QueueUrl, Entries: done}); err != nil {
			t.Fatalf("read %s: %v", queue, err)
		}
	}
	return all
}

func stringValues(attributes map[string]types.MessageAttributeValue) map[string]string {
	all := map[string]string{}
	for name, v := range attributes {
		all[name] = aws.ToString(v.StringValue)
	}
	return all
}

func faked(f *fake, suffix string) sinktest.Harness {
	h := harness(f.url, suffix, f.limit)
	h.Address = func(*testing.T) string { return f.create(queueNameFor("test", suffix)) }
	h.Read = func(t *testing.T, address string, n int) (all []sinktest.Received) {
		for end := time.Now().Add(30 * time.Second); len(f.received(address)) < n && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // for what shouldn't come
		for _, e := range f.received(address) {
			all = append(all, consumed(t, e.MessageBody, e.attributes()))
		}
		return all
	}
	return withOutage(h, f.url)
}

// consumed is a message as a consumer reads it by the documented form.
func consumed(t testing.TB, body string, attributes map[string]string) sinktest.Received {
	t.Helper()
	if folded, ok := attributes["relay-headers"]; ok {
		delete(attributes, "relay-headers")
		more := map[string]string{}
		if err := json.Unmarshal([]byte(folded), &more); err != nil {
			t.Fatalf("relay-headers: %v", err)
		}
		for name, value := range more {
			if _, twice := attributes[name]; twice {
				t.Errorf("%q is an attribute and in relay-headers", name)
			}
			attributes[name] = value
		}
	}
	r := sinktest.Received{Payload: []byte(body), Headers: map[string]any{}}
	for name, value := range attributes {
		switch name {
		case "relay-id":
			r.ID = value
		case "relay-kind":
			r.Kind = value
		case "relay-time":
			r.Time = value
		case "relay-attempt":
			r.Attempt = value
		case "relay-key":
			r.Key = &value
		case "relay-replay":
			r.Replay = value
		case "relay-encoding":
			decoded, err := base64.StdEncoding.DecodeString(body)
			if err != nil || value != "base64" {
				t.Errorf("body in the encoding %q: %v", value, err)
			}
			r.Payload = decoded
		default:
			r.Headers[name] = value
			if strings.EqualFold(name, "content-type") {
				r.ContentType = value
			}
		}
	}
	return r
}

func BenchmarkElasticMQ(b *testing.B) {
	endpoint := services.SQS(b)
	sinktest.Benchmark(b, func(b *testing.B) (sinks.Sink, string) {
		return open(b, Settings{Endpoint: endpoint, Region: "us-east-1"}), createQueue(b, testClient(b, endpoint), "")
	})
}
