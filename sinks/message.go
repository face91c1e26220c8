package sinks

import "time"

// Message is a job after routing: what one broker sees of it.
//
// Its byte slices belong to the batch that was claimed. They stay as they are for as long as anything holds them (no
// buffer is recycled), so a request that outlives its deadline can't send somebody else's bytes. A sink doesn't
// change them.
type Message struct {
	ID      string    // SOURCE/ID: the same on every attempt, destination and replay
	Address string    // where to, with the route's templates expanded; its form is the sink's own
	Kind    string    // 1–255 bytes of UTF-8
	Key     *string   // ordering and partition key; nil when the job has none ("" is a key)
	Attempt int       // from 1
	Time    time.Time // when the job was enqueued, UTC, microseconds
	Replay  int64     // id of the copy when an operator replays a job, else 0
	Ordered bool      // its route keeps the order of keys: see [Sequencer]

	Headers     []Header // the job's own, sorted by name; relay-… names never occur
	ContentType string   // the header content-type if the job has it, else application/json or application/octet-stream
	Payload     []byte   // JSON text as jsonb gives it, or opaque bytes; may be empty only when Opaque
	Opaque      bool     // Payload is the job's body, to be delivered byte for byte
}

// Header is one of the job's own headers.
//
// Value is a string, bool or int64; a number that is no 64-bit integer is its text. Text is what text-only brokers get: a
// string as it is, numbers and booleans in their JSON text.
type Header struct {
	Name  string
	Text  string
	Value any
}

// TimeFormat is how a message's time is written where it is text: RFC 3339, UTC, always six digits.
const TimeFormat = "2006-01-02T15:04:05.000000Z07:00"

// Names of the relay's own headers and attributes.
const (
	HeaderID      = "relay-id"
	HeaderKind    = "relay-kind"
	HeaderAttempt = "relay-attempt"
	HeaderTime    = "relay-time"
	HeaderKey     = "relay-key"
	HeaderReplay  = "relay-replay"
)
