package outbox

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a job. The table checks kind and key too.
const (
	MaxKind       = 255       // bytes
	MaxKey        = 1024      // bytes
	MaxHeaderName = 255       // bytes
	MaxPayload    = 128 << 20 // bytes of payload or body: the most that any of the brokers can be told to take
	maxDepth      = 1000      // of arrays and objects in a payload; Postgres gives up somewhere beyond 5,000
)

// Job is what an application wants to have delivered. Kind and one of Payload and Body are required.
type Job struct {
	// Kind is the job's stable name, what routes match: 1 to 255 bytes of UTF-8 without NUL.
	Kind string

	// Key orders and partitions: jobs of one key go to the same partition or FIFO group. "" is no key. At most 1,024
	// bytes of UTF-8 without NUL.
	Key string

	// Payload is delivered as JSON, in the normal form of Postgres' jsonb: digits never change, white space, the order
	// of members and all but the last of equal members do. json.RawMessage is taken as it is, JSON null included;
	// anything else is encoded by encoding/json, without its escapes for HTML. nil is no payload.
	Payload any

	// Body is delivered byte for byte. nil is no body; an empty body is one, which SQS can't take.
	Body []byte

	// Headers go along as Kafka headers, RabbitMQ headers or SQS attributes. Values are strings, booleans, whole or
	// floating-point numbers and json.Number. Names are 1 to 255 bytes and don't begin with "relay-".
	Headers map[string]any

	// RunAt is when the job is due, to the microsecond. The zero value is the transaction's own time.
	RunAt time.Time

	// Priority puts a job before others of its kind: the larger goes first. Default 0.
	Priority int16

	// MaxAttempts is how many tries count before the job is dead. 0 is the table's default, which is 5 unless the
	// table was made otherwise.
	MaxAttempts int
}

// row is a checked job as the statement takes it; nil is NULL.
type row struct {
	kind        string
	key         *string
	payload     *string
	body        []byte
	headers     *string
	runAt       *string
	priority    int16
	maxAttempts int
}

func (r *row) size() int {
	size := len(r.kind) + len(r.body)
	for _, part := range []*string{r.key, r.payload, r.headers} {
		if part != nil {
			size += len(*part)
		}
	}
	return size
}

// check turns jobs into rows, or says what is wrong with the first that can't be one.
func check(jobs []Job) ([]row, error) {
	rows := make([]row, len(jobs))
	for i := range jobs {
		if bad := rows[i].fill(&jobs[i]); bad != nil {
			bad.Index = i
			return nil, bad
		}
	}
	return rows, nil
}

func (r *row) fill(j *Job) *InvalidError {
	if rule := textRule(j.Kind, 1, MaxKind); rule != "" {
		return invalid("kind", j.Kind, rule)
	}
	if rule := textRule(j.Key, 0, MaxKey); rule != "" {
		return invalid("key", j.Key, rule)
	}
	if j.MaxAttempts < 0 || j.MaxAttempts > math.MaxInt32 {
		return invalid("max_attempts", j.MaxAttempts, "must be from 0, the table's default, to 2147483647")
	}
	r.kind, r.priority, r.maxAttempts = j.Kind, j.Priority, j.MaxAttempts
	if j.Key != "" {
		r.key = &j.Key
	}
	if bad := r.fillRunAt(j.RunAt); bad != nil {
		return bad
	}
	if bad := r.fillHeaders(j.Headers); bad != nil {
		return bad
	}
	return r.fillContent(j)
}

// textRule says which rule of the text columns s breaks, "" if none.
func textRule(s string, least, most int) string {
	switch {
	case len(s) < least:
		return "must not be empty"
	case len(s) > most:
		return "must be at most " + inBytes(most)
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return "must not hold NUL, which Postgres can't store"
	}
	return ""
}

// timeFormat is understood by Postgres whatever its DateStyle. Cut to microseconds, as Postgres keeps them: rounding
// up would make a job due later than it was meant to be.
const timeFormat = "2006-01-02 15:04:05.000000+00"

// lastYear is the last that Postgres knows in full.
const lastYear = 294275

func (r *row) fillRunAt(at time.Time) *InvalidError {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	if at.Year() < 1 || at.Year() > lastYear {
		return invalid("run_at", at.Format(time.RFC3339), "must be in the years 1 to 294275")
	}
	text := at.Format(timeFormat)
	r.runAt = &text
	return nil
}

func (r *row) fillContent(j *Job) *InvalidError {
	switch {
	case j.Payload == nil && j.Body == nil:
		return invalid("payload", nil, "must be there, or body; JSON null is json.RawMessage(\"null\")")
	case j.Payload != nil && j.Body != nil:
		return invalid("payload", nil, "must not be there together with body")
	case len(j.Body) > MaxPayload:
		return invalid("body", nil, "is "+inBytes(len(j.Body))+", must be at most "+inBytes(MaxPayload))
	case j.Body != nil:
		r.body = j.Body
		return nil
	}
	text, bad := encodePayload(j.Payload)
	r.payload = &text
	return bad
}
