package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is what every [InvalidError] is: a job was refused and the transaction not touched.
var ErrInvalid = errors.New("invalid job")

// ErrTooManyKeys says that a call of EnqueueOrdered would lock, or could not lock, so many keys.
var ErrTooManyKeys = errors.New("too many keys to lock at once")

// InvalidError says why a job can't be enqueued. None of the jobs of the call was.
type InvalidError struct {
	Index int    // of the job among those of the call, from 0
	Field string // the column: kind, key, payload, body, headers, run_at or max_attempts
	Path  string // the place in the payload ("$.lines[3].text"), or the header's name; else ""
	Value string // the value in quotes, shortened; never that of payload, body or a header; "" if there is none to show
	Rule  string // what the value must be
	Err   error  // what the JSON encoder said, if it refused; it may hold parts of the payload, so Error leaves it out
}

// Error names the job, the field and the rule in one line.
func (e *InvalidError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "enqueue: job %d: %s", e.Index, e.Field)
	if e.Path != "" {
		b.WriteString(" at " + e.Path)
	}
	if e.Value != "" {
		b.WriteString(" " + e.Value)
	}
	return b.String() + ": " + e.Rule
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns what the JSON encoder said.
func (e *InvalidError) Unwrap() error { return e.Err }

// longestShown bounds what an error repeats of a value.
const longestShown = 60

func invalid(field string, value any, rule string) *InvalidError {
	e := &InvalidError{Field: field, Rule: rule}
	switch v := value.(type) {
	case nil:
	case string:
		e.Value = shorten(v)
	default:
		e.Value = fmt.Sprint(v)
	}
	return e
}

func invalidAt(field, path, rule string) *InvalidError {
	return &InvalidError{Field: field, Path: path, Rule: rule}
}

// shorten quotes a text, so that it stays one line, and bounds it.
func shorten(s string) string {
	if len(s) > longestShown {
		return fmt.Sprintf("%q…", s[:longestShown])
	}
	return fmt.Sprintf("%q", s)
}

// inBytes writes a size.
func inBytes(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
