package stage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Message is what a consumer gets. Headers are in their text form, those of the relay among them.
type Message struct {
	Key     *string
	Headers map[string]string
	Payload []byte
}

// FromKafka reads a record.
func FromKafka(r *kgo.Record) Message {
	m := Message{Headers: map[string]string{}, Payload: r.Value}
	if r.Key != nil {
		k := string(r.Key)
		m.Key = &k
	}
	for _, h := range r.Headers {
		m.Headers[h.Key] = string(h.Value)
	}
	return m
}

// FromRabbitMQ reads a delivery.
func FromRabbitMQ(d amqp.Delivery) Message {
	m := Message{Headers: map[string]string{"relay-id": d.MessageId}, Payload: d.Body}
	for k, v := range d.Headers {
		m.Headers[k] = fmt.Sprint(v)
	}
	if k, ok := d.Headers["relay-key"].(string); ok {
		m.Key = &k
	}
	return m
}

// FromSQS reads what a queue gave.
func FromSQS(in types.Message) Message {
	m := Message{Headers: map[string]string{}, Payload: []byte(*in.Body)}
	for k, v := range in.MessageAttributes {
		m.Headers[k] = aws.ToString(v.StringValue)
	}
	if text, ok := m.Headers["relay-headers"]; ok { // what doesn't fit as attributes
		_ = json.Unmarshal([]byte(text), &m.Headers)
	}
	if k, ok := m.Headers["relay-key"]; ok {
		m.Key = &k
	}
	if m.Headers["relay-encoding"] == "base64" {
		m.Payload, _ = base64.StdEncoding.DecodeString(*in.Body)
	}
	return m
}
