package sinktest

import (
	"testing"

	"github.com/jobrelay/relay/sinks"
)

// Harness is what the suite needs to know of a sink and its broker. Every function may be called from parallel
// subtests.
type Harness struct {
	// Open returns a sink on a working broker; the suite closes it.
	Open func(t *testing.T) sinks.Sink
	// Address makes a place of its own (topic, queue) and returns its address.
	Address func(t *testing.T) string
	// Read returns everything the place has received, in order where the broker keeps one, once at least n messages
	// are there or a generous deadline has passed, and none came for a moment.
	Read func(t *testing.T, address string, n int) []Received
	// Missing is a well-formed address that doesn't exist.
	Missing func(t *testing.T) string
	// Away returns a sink whose broker can't be reached (a closed port).
	Away func(t *testing.T) sinks.Sink
	// Silent returns a sink whose broker takes the connection and requests but whose answers never come (traffic
	// swallowed by a proxy), together with the address to use.
	Silent func(t *testing.T) (sinks.Sink, string)
	// TooLarge is a payload size in bytes that this broker refuses for a single message, 0 when it has no limit
	// that a test can reach.
	TooLarge int
	// RefusesEmpty: an empty body is Rejected (SQS).
	RefusesEmpty bool
	// TextHeaders: header values arrive as text (Kafka, SQS); otherwise typed.
	TextHeaders bool
	// Unordered: the broker keeps no order within an address.
	Unordered bool
}

// Received is a message as a consumer of the broker sees it, in the product's words.
type Received struct {
	ID, Kind, Time string
	Attempt        string
	Key            *string
	Headers        map[string]any // the job's own headers
	ContentType    string         // "" where the broker got none
	Payload        []byte         // decoded, when the form is encoded (base64)
	Replay         string
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
}
