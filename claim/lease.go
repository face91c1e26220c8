package claim

import "time"

// Lease is a claimed job: its columns, and the proof of the claim.
//
// Byte slices share one arena per claim. They are never reused, so they may outlive the batch.
type Lease struct {
	ID          int64
	Token       int64 // proof of this claim, never reused; every later statement matches it
	Kind        string
	Key         *string
	Priority    int16
	Payload     []byte // JSON text as jsonb gives it; nil when the job has a Body
	Body        []byte // opaque bytes; nil (not empty) when the job has a Payload
	Headers     []byte // JSON object as text; nil when NULL
	Attempt     int    // counts this try, from 1
	MaxAttempts int
	Alone       bool     // to be published in a batch of its own
	Delivered   []string // destinations that have accepted it, as the route writes them
	ReplayOf    *int64   // the job that this one is a copy of
	RunAt       time.Time
	CreatedAt   time.Time // zero when NULL
	Until       time.Time // the lease's end by this process's clock, on the safe side
	// Fault says which column couldn't be read, if any: the job can't be sent as it is and is to be settled Dead.
	Fault error
}

// Size is what the lease counts against the batch's bytes.
func (l *Lease) Size() int { return len(l.Payload) + len(l.Body) + len(l.Headers) }

// Verdict is what becomes of a lease.
type Verdict uint8

const (
	// Release gives the job back with its attempt: it was never tried. The zero value, as it loses nothing.
	Release Verdict = iota
	// Done: every destination has accepted it.
	Done
	// Retry: ready again after a delay; the attempt counts.
	Retry
	// Dead: for an operator to look at.
	Dead
)

// String gives the name used in metrics and logs.
func (v Verdict) String() string {
	switch v {
	case Done:
		return "done"
	case Retry:
		return "retry"
	case Dead:
		return "dead"
	default:
		return "release"
	}
}

// Outcome settles one lease.
type Outcome struct {
	Lease     *Lease
	Verdict   Verdict
	Delivered []string      // destinations that accepted it this time, added to those of before with any verdict
	After     time.Duration // Retry: until the next try. Release: 0 leaves run_at as it is, else run_at is now + After
	Alone     bool          // Retry: next time in a batch of its own (otherwise the mark is cleared)
	Error     string        // Retry, Dead: the reason, cut to 4 KiB; Release: kept as it was when empty
	Late      bool          // the lease is known to be lost: a Done counts as long as nobody else has claimed the job
}

// Pair is one (kind, priority) of the pending index.
type Pair struct {
	Kind     string
	Priority int16
}

// Gate says what a claim may take of a pair.
type Gate struct {
	Open bool // false: nothing, the pair isn't claimed at all
	// Lacking, when not empty: only jobs that lack at least one of these destinations in delivered. It names the
	// open destinations while others of the kind are paused.
	Lacking []string
	// Max bounds the rows of this pair; 0 is the batch's own bound. 1 tries a destination with a lone job.
	Max int
}
