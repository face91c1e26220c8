package claim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultRate is how many jobs a second a replay copies and a requeue changes unless it is told otherwise: a small part
	// of what relays and brokers take, so that live traffic doesn't notice.
	DefaultRate = 1000
	// RateMost is the largest rate.
	RateMost = 100_000
)

// Replay says which done jobs to copy and how.
type Replay struct {
	Name   string // progress is kept under it; default: made from the filter
	Filter ReplayFilter
	// Again runs a finished replay anew, with its times resolved anew. With a destination it also sends what that one
	// has had.
	Again  bool
	Rate   int // copies a second, at most RateMost; default DefaultRate
	DryRun bool
	// Others lists the destinations of a kind other than Filter.Destination, which its copies must not go to; an error
	// refuses the kind. Only needed with a destination.
	Others func(kind string) ([]string, error)
	// Progress is told what was done so far, after each batch and while the run waits for relays; may be nil.
	Progress func(Replayed)
}

// ReplayFilter chooses done jobs; empty fields match everything. It is kept as JSON with the replay's progress.
type ReplayFilter struct {
	Kind        string  `json:"kind,omitempty"`
	Key         *string `json:"key,omitempty"`
	Since       Moment  `json:"since,omitzero"` // finished at or after
	Until       Moment  `json:"until,omitzero"` // finished before; now, when it's later or not given
	IDs         []int64 `json:"ids,omitempty"`
	Limit       int     `json:"limit,omitempty"` // most copies, those with the lowest ids; 0: no limit
	Destination string  `json:"destination,omitempty"`
}

// Moment is a time and how somebody wrote it: a duration back from now means another time with each command, and the
// command that goes on is the one that was written the same.
type Moment struct {
	Written string    `json:"written,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// Replayed is what a replay did.
type Replayed struct {
	Name    string
	Copied  int64        // by this run
	Total   int64        // that this run has to copy; 0: not known yet
	InAll   int64        // copied under this name, by this run and those that it goes on for
	Had     int64        // skipped: the destination has had them
	Gone    int64        // skipped: named or found, but no done job (any more)
	Waiting int          // unfinished copies, while the run waits for relays to send some of them
	Kinds   []ReplayKind // after a dry run: what there is, sorted by kind
}

// Skipped is how many jobs were chosen and not copied.
func (r Replayed) Skipped() int64 { return r.Had + r.Gone }

// ReplayKind is what was found of one kind.
type ReplayKind struct {
	Kind            string
	Jobs, Had       int64 // to copy, to skip
	FirstID, LastID int64 // of those to copy
	First, Last     time.Time
}

// Replay copies done jobs, so that relays send them once more: in the order of id, at a bounded rate, never more than a
// few unfinished copies at a time. Each batch is a transaction that also moves the progress on, so the same Replay goes
// on after an interruption, and of two at once only the quicker one copies a batch. When ctx ends it returns what was
// done so far together with the error.
func (s *Store) Replay(ctx context.Context, r Replay) (Replayed, error) {
	if err := r.complete(); err != nil {
		return Replayed{Name: r.Name}, fmt.Errorf("replay: %w", err)
	}
	run := newReplayRun(s, r)
	err := run.begin(ctx)
	if err == nil {
		err = run.all(ctx)
		run.count()
	}
	if err != nil {
		return run.done, fmt.Errorf("replay %s: %w", r.Name, err)
	}
	return run.done, nil
}

// complete checks the replay and fills in what it leaves open.
func (r *Replay) complete() error {
	if r.Rate == 0 {
		r.Rate = DefaultRate
	}
	f := &r.Filter
	f.IDs = slices.Compact(slices.Sorted(slices.Values(f.IDs)))
	if r.Name == "" {
		r.Name = f.name()
	}
	switch {
	case r.Rate < 1 || r.Rate > RateMost:
		return fmt.Errorf("rate %d: 1 to %d", r.Rate, RateMost)
	case f.Limit < 0:
		return fmt.Errorf("limit %d: at least 1", f.Limit)
	case f.Destination != "" && r.Others == nil:
		return errors.New("a destination without the routes that lead there")
	}
	return nil
}

// name is the same for the same filter as written.
func (f ReplayFilter) name() string {
	f.Since.Time, f.Until.Time = time.Time{}, time.Time{}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // no field can fail
	}
	sum := sha256.Sum256(text)
	return "replay-" + hex.EncodeToString(sum[:6])
}

// differences names the fields in which two filters were written differently.
func (f ReplayFilter) differences(g ReplayFilter) (out []string) {
	differ := func(name, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %s and is %s", name, short(was), short(is)))
		}
	}
	differ("kind", f.Kind, g.Kind)
	differ("key", quoted(f.Key), quoted(g.Key))
	differ("since", f.Since.Written, g.Since.Written)
	differ("until", f.Until.Written, g.Until.Written)
	differ("id", list(f.IDs), list(g.IDs))
	differ("limit", number(f.Limit), number(g.Limit))
	differ("destination", f.Destination, g.Destination)
	return out
}

func quoted(s *string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%q", *s)
}

func list(ids []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// short is a value in a message: a list of ids may be long.
func short(s string) string {
	switch {
	case s == "":
		return "not given"
	case len(s) > 80:
		return s[:80] + "…"
	}
	return s
}
