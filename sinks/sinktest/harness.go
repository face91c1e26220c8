package sinktest

import (
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// Harness is what the suite needs to know of a sink and its broker. Every function may be called from parallel
// subtests. What a function starts it ends in t.Cleanup: a goroutine left behind counts as a leak of the sink. What
// all cases share (an admin client) is started before Run.
//
// Open, Address and Read are needed; a case whose function is nil isn't run.
type Harness struct {
	// Open returns a sink on a working broker; the suite closes it.
	Open func(t *testing.T) sinks.Sink
	// Address makes a place of its own (topic, queue) and returns its address.
	Address func(t *testing.T) string
	// Read returns everything the place has received, in order where the broker keeps one, once at least n messages
	// are there or a generous deadline has passed, and none came for a moment. A case reads a place once, at its end, so
	// reading may consume.
	Read func(t *testing.T, address string, n int) []Received
	// Missing is a well-formed address that doesn't exist.
	Missing func(t *testing.T) string
	// Parent names the wider place of an address, as the settings' do: it is what is missing then. Nil: there is none.
	Parent func(address string) string
	// Away returns a sink whose broker can't be reached (a closed port). Nil: made from Outage by cutting the line
	// before the first use.
	Away func(t *testing.T) sinks.Sink
	// Silent returns a sink whose broker takes the connection and requests but whose answers never come (traffic
	// swallowed by a proxy), together with the address to use. Nil: made from Outage by swallowing answers before the
	// first use.
	Silent func(t *testing.T) (sinks.Sink, string)
	// Outage returns a sink on a working broker that it reaches by a line which the suite breaks and heals
	// (usually a Proxy), and an address of its own on that broker.
	Outage func(t *testing.T) (sinks.Sink, string, Line)
	// TooLarge is a payload size in bytes that this broker refuses for a single message, 0 when it has no limit
	// that a test can reach.
	TooLarge int
	// Refused holds, by name, changes that turn a good message into one that this broker can never accept: an illegal
	// address, a header name that is too long. The sink must say Rejected, of that message alone.
	Refused map[string]func(m *sinks.Message)
	// RefusesEmpty: an empty body is Rejected (SQS).
	RefusesEmpty bool
	// TextHeaders: header values arrive as text (Kafka, SQS); otherwise typed.
	TextHeaders bool
	// Unordered: the broker keeps no order within an address.
	Unordered bool
	// BlindCheck: nothing short of a message shows whether the broker is there, so Check can't tell (standard output).
	BlindCheck bool

	keepsOrder bool // the sink is a Sequencer
}

// Line is the way from a sink to its broker. A new line is healthy.
type Line interface {
	// Swallow lets requests through and drops every answer from now on.
	Swallow()
	// Cut breaks every connection and refuses new ones.
	Cut()
	// Delay holds every answer back until so long after its request.
	Delay(d time.Duration)
	// Heal ends Swallow, Cut and Delay. Connections that lost answers are closed: their bytes no longer make sense.
	Heal()
}

// Received is a message as a consumer of the broker sees it, in the product's words.
type Received struct {
	ID, Kind, Time string
	Attempt        string // decimal, also where the broker has a number
	Key            *string
	Headers        map[string]any // the job's own headers; the suite looks at content-type only in ContentType
	ContentType    string         // property or header of that name, "" where the broker got none
	Payload        []byte         // decoded, when the form is encoded (base64)
	Replay         string         // "" when there is none
}
