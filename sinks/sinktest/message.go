package sinktest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// canary is in the payload and in a header value of every message. No error may repeat it.
const canary = "canary-cf81"

var (
	serial atomic.Int64
	run    = fmt.Sprintf("suite%d-%d", os.Getpid(), time.Now().UnixNano())
)

// message makes one with an id that no other has, and a key that spreads over partitions and groups.
func message(address string) sinks.Message {
	n := serial.Add(1)
	key := fmt.Sprintf("key-%d", n%50)
	return sinks.Message{
		ID:          fmt.Sprintf("%s/%d", run, n),
		Address:     address,
		Kind:        "suite.message",
		Key:         &key,
		Attempt:     1,
		Time:        time.Date(2026, 3, 4, 5, 6, 7, 890_123_000, time.UTC),
		Headers:     []sinks.Header{text("note", canary)},
		ContentType: "application/json",
		Payload:     fmt.Appendf(nil, `{"n": %d, "secret": %q}`, n, canary),
	}
}

// messages makes n of them.
func messages(address string, n int) []sinks.Message {
	batch := make([]sinks.Message, n)
	for i := range batch {
		batch[i] = message(address)
	}
	return batch
}

// opaque makes a message of the job's body.
func opaque(address string, body []byte) sinks.Message {
	m := message(address)
	m.Payload, m.Opaque, m.ContentType = body, true, "application/octet-stream"
	return m
}

func text(name, value string) sinks.Header {
	return sinks.Header{Name: name, Text: value, Value: value}
}

func typed(name, text string, value any) sinks.Header {
	return sinks.Header{Name: name, Text: text, Value: value}
}

// sorted puts headers into the order that a message promises.
func sorted(headers ...sinks.Header) []sinks.Header {
	slices.SortFunc(headers, func(a, b sinks.Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

// clone copies a batch deeply enough to notice any change.
func clone(batch []sinks.Message) []sinks.Message {
	out := slices.Clone(batch)
	for i := range out {
		out[i].Headers = slices.Clone(out[i].Headers)
		out[i].Payload = slices.Clone(out[i].Payload)
		if out[i].Key != nil {
			key := strings.Clone(*out[i].Key)
			out[i].Key = &key
		}
	}
	return out
}
