package sqs

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/jobrelay/relay/sinks"
)

// Attributes that only this sink has, beside those of package sinks.
const (
	attributeEncoding = "relay-encoding" // "base64" when the body is
	attributeHeaders  = "relay-headers"  // headers that don't fit as attributes, as a JSON object of strings
)

const mostAttributes = 10

// entry is a message on its way.
type entry struct {
	index      int // in the batch
	body       string
	attributes map[string]types.MessageAttributeValue
	size       int    // what SQS counts: body, and name, type and value of each attribute
	group      string // of a FIFO queue
	dedup      string
}

var errEmpty = errors.New("sqs: an empty body can't be sent: a message there has at least one character")

// newEntry turns a message into an entry, or says which rule of SQS it breaks.
func newEntry(index int, m *sinks.Message, fifo bool) (*entry, error) {
	body, encoding := bodyOf(m)
	if body == "" {
		return nil, errEmpty
	}
	attributes, err := attributesOf(m, encoding)
	if err != nil {
		return nil, err
	}
	e := &entry{index: index, body: body, attributes: attributes, size: len(body)}
	for name, v := range attributes {
		e.size += len(name) + len(*v.DataType) + len(*v.StringValue)
	}
	if fifo {
		e.group, e.dedup = groupOf(m), dedupOf(m)
	}
	return e, nil
}

// bodyOf is the text that is sent, and its encoding when it isn't what the job holds.
func bodyOf(m *sinks.Message) (text, encoding string) {
	text = string(m.Payload)
	if sendable(text) {
		return text, ""
	}
	if !m.Opaque {
		if text = noncharacters.Replace(text); sendable(text) {
			return text, ""
		}
	}
	return base64.StdEncoding.EncodeToString(m.Payload), "base64"
}

// attributesOf are the relay's own and the job's headers: each by itself when all fit, else those of the job together.
// One of the relay's own that doesn't fit (an empty key, a strange kind) goes with the headers.
func attributesOf(m *sinks.Message, encoding string) (map[string]types.MessageAttributeValue, error) {
	all := make(map[string]types.MessageAttributeValue, mostAttributes)
	folded := map[string]string{}
	own := func(name, value string) {
		if fits(value) {
			all[name] = attribute(value)
		} else {
			folded[name] = value
		}
	}
	own(sinks.HeaderID, m.ID)
	own(sinks.HeaderKind, m.Kind)
	own(sinks.HeaderAttempt, strconv.Itoa(m.Attempt))
	own(sinks.HeaderTime, m.Time.UTC().Format(sinks.TimeFormat))
	if m.Key != nil {
		own(sinks.HeaderKey, *m.Key)
	}
	if m.Replay != 0 {
		own(sinks.HeaderReplay, strconv.FormatInt(m.Replay, 10))
	}
	if encoding != "" {
		own(attributeEncoding, encoding)
	}
	if len(folded) == 0 && len(all)+len(m.Headers) <= mostAttributes && allFit(m.Headers) {
		for _, h := range m.Headers {
			all[h.Name] = attribute(h.Text)
		}
		return all, nil
	}
	for _, h := range m.Headers {
		folded[h.Name] = h.Text
	}
	text, err := marshal(folded)
	if err != nil {
		return nil, fmt.Errorf("sqs: fold the headers: %w", err)
	}
	all[attributeHeaders] = attribute(text)
	return all, nil
}

func allFit(headers []sinks.Header) bool {
	for _, h := range headers {
		if !nameable(h.Name) || !fits(h.Text) {
			return false
		}
	}
	return true
}

// fits says whether a text can be an attribute's value.
func fits(value string) bool { return value != "" && sendable(value) }

func attribute(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
}

// groupOf keeps the messages of one key in order; those without a key are in the order of their kind.
func groupOf(m *sinks.Message) string {
	if m.Key == nil {
		return plain(m.Kind)
	}
	return plain(*m.Key)
}

// dedupOf is the same for every attempt, so that a queue forgets what it has; a replay is meant to arrive again.
func dedupOf(m *sinks.Message) string {
	if m.Replay == 0 {
		return plain(m.ID)
	}
	return plain(m.ID + ":" + strconv.FormatInt(m.Replay, 10))
}

// request is the entry in a call, under an id that counts for this call alone.
func (e *entry) request(id int) types.SendMessageBatchRequestEntry {
	r := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(id)), MessageBody: &e.body, MessageAttributes: e.attributes}
	if e.dedup != "" {
		r.MessageGroupId, r.MessageDeduplicationId = &e.group, &e.dedup
	}
	return r
}
