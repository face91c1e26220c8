package ops

import (
	"time"

	"github.com/jobrelay/relay/claim"
)

// Status is what `relay status --json` prints and the page shows.
type Status struct {
	Source         string          `json:"source"`
	At             time.Time       `json:"at"`
	LagSeconds     float64         `json:"lag_seconds"` // age of the oldest due job of a routed kind
	DeadTuples     int64           `json:"dead_tuples"`
	OldestSnapshot *claim.Snapshot `json:"oldest_snapshot"`
	Kinds          []Kind          `json:"kinds"` // sorted by kind
}

// Kind is one kind's line.
type Kind struct {
	Kind             string  `json:"kind"`
	Routed           *bool   `json:"routed"` // null: no routes are configured here
	Ready            int64   `json:"ready"`
	Due              int64   `json:"due"` // those of ready whose time has come
	Running          int64   `json:"running"`
	Dead             int64   `json:"dead"`
	OldestDueSeconds float64 `json:"oldest_due_seconds"`
	ClosedKeys       int64   `json:"closed_keys"`      // held by a dead job, where the route keeps the order of keys
	Capped           bool    `json:"capped,omitempty"` // a count stopped at claim.CountLimit
}

// Routes is what figures need to know of the routes. The zero value: none are known, and then every kind counts for the
// lag, and every key that a dead job could hold as held.
type Routes struct {
	Serves func(kind string) bool // a route matches the kind
	Closes func(kind string) bool // its route lets a dead job hold its key
}

// NewStatus shapes figures.
func NewStatus(source string, f claim.Figures, routes Routes) Status {
	s := Status{Source: source, At: f.At.UTC(), DeadTuples: f.DeadTuples, OldestSnapshot: f.OldestSnapshot, Kinds: []Kind{}}
	for _, k := range f.Kinds {
		line := Kind{
			Kind: k.Kind, Ready: k.Ready, Due: k.Due, Running: k.Running, Dead: k.Dead,
			OldestDueSeconds: k.OldestDueSeconds, Capped: k.Capped,
		}
		ours := true
		if routes.Serves != nil {
			ours = routes.Serves(k.Kind)
			line.Routed = &ours
		}
		if routes.Closes == nil || routes.Closes(k.Kind) {
			line.ClosedKeys = k.ClosedKeys
		}
		if ours {
			s.LagSeconds = max(s.LagSeconds, k.OldestDueSeconds)
		}
		s.Kinds = append(s.Kinds, line)
	}
	return s
}
