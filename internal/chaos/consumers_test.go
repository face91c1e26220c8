package chaos

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/stage"
)

// arrival is a message in the history's words.
func arrival(to string, m stage.Message) history.Arrival {
	a := history.Arrival{To: to, ID: m.Headers["relay-id"], Payload: string(m.Payload)}
	a.Attempt, _ = strconv.Atoi(m.Headers["relay-attempt"])
	a.Replay, _ = strconv.ParseInt(m.Headers["relay-replay"], 10, 64)
	if m.Key != nil {
		a.Key = *m.Key
	}
	return a
}

// consume reads every place from its beginning to its end, over lines without faults.
func (w *world) consume() (all []history.Arrival) {
	w.t.Helper()
	all = w.consumeKafka()
	for _, address := range places("rabbitmq") {
		all = append(all, w.consumeRabbitMQ(address)...)
	}
	for _, address := range places("sqs") {
		all = append(all, w.consumeSQS(address)...)
	}
	return all
}

func (w *world) sqs(options ...func(*sqs.Options)) *sqs.Client {
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return sqs.New(sqs.Options{HTTPClient: &http.Client{Transport: transport}, BaseEndpoint: &w.queues.URL, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}, options...)
}

func (w *world) setUpSQS() {
	w.t.Helper()
	for _, address := range places("sqs") {
		attributes := map[string]string{"VisibilityTimeout": "15"}
		if strings.HasSuffix(address, ".fifo") {
			attributes["FifoQueue"] = "true"
		}
		if _, err := w.sqs().CreateQueue(w.t.Context(), &sqs.CreateQueueInput{QueueName: &address, Attributes: attributes}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// consumeSQS receives until the queue says that nothing is left, one caller at a time, since two could hand over a group's
// messages in another order than they got them. What a lost reply held comes again after the visibility timeout; a message
// that comes again, by the queue's own id, wasn't sent again.
func (w *world) consumeSQS(address string) (all []history.Arrival) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	cl := w.sqs()
	q, err := cl.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &address})
	if err != nil {
		w.t.Fatal(err)
	}
	had := map[string]bool{}
	for {
		got, err := cl.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"}})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(got.Messages) == 0 {
			if w.nothingLeft(ctx, cl, q.QueueUrl) {
				return all
			}
			continue
		}
		var entries []types.DeleteMessageBatchRequestEntry
		for i, m := range got.Messages {
			if !had[*m.MessageId] {
				had[*m.MessageId] = true
				all = append(all, arrival("sqs:"+address, stage.FromSQS(m)))
			}
			entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := cl.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: q.QueueUrl, Entries: entries}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// nothingLeft asks the queue, which also counts what was received and not deleted.
func (w *world) nothingLeft(ctx context.Context, cl *sqs.Client, queue *string) bool {
	w.t.Helper()
	got, err := cl.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Attributes["ApproximateNumberOfMessages"] == "0" && got.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
}
