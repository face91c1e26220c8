package ops

import (
	"fmt"
	"math"
	"time"

	"github.com/jobrelay/relay/claim"
)

// KindShare is one line of `relay kinds list`: how a kind is divided between relays and others, who finished what of it
// lately, and what waits for whom.
type KindShare struct {
	Kind       string     `json:"kind"`
	Share      *int       `json:"share"`       // null: no row yet, all of the kind belongs to others
	ChangedAt  *time.Time `json:"changed_at"`  // when the share was last changed
	Routed     *bool      `json:"routed"`      // null: no routes are configured here
	RouteShare *int       `json:"route_share"` // what the kind's route says; null: nothing
	Since      time.Time  `json:"since"`       // what finished from here on is counted
	Seconds    float64    `json:"seconds"`     // from Since until now
	Capped     bool       `json:"capped"`      // claim.KindRows were counted: there are more within the window
	Relay      Side       `json:"relay"`
	Others     Side       `json:"others"`
	// The relays' part of what finished, 0 to 100; null when a side that owns a part has left nothing to count.
	Percent       *float64 `json:"relay_percent"`
	PercentOfKeys *float64 `json:"relay_percent_of_keys"`
	ReadyCapped   bool     `json:"ready_capped"` // claim.KindRows unfinished jobs were looked at: there are more
	Notes         []string `json:"notes"`        // what a reader of the figures must know
}

// Side is what relays, or all others together, did of a kind, and what waits for them.
type Side struct {
	Done             *int64   `json:"done"` // null: nobody can know, they are deleted as they settle
	DonePerSecond    *float64 `json:"done_per_second"`
	Dead             int64    `json:"dead"`
	Keys             int64    `json:"keys"` // distinct keys of done and dead; a job without a key is one of its own
	Ready            int64    `json:"ready"`
	OldestDueSeconds float64  `json:"oldest_due_seconds"`
}

// KindsKnown is what the caller knows beside the database. The zero value knows nothing.
type KindsKnown struct {
	Serves      func(kind string) bool        // nil: no routes
	RouteShare  func(kind string) (int, bool) // nil: no routes
	DeletesDone bool                          // relays delete done jobs as they settle
}

// NewKindShare shapes the figures of a kind.
func NewKindShare(f claim.KindStats, known KindsKnown) KindShare {
	seconds := f.At.Sub(f.Since).Seconds()
	k := KindShare{
		Kind: f.Kind, Since: f.Since.UTC(), Seconds: seconds, Capped: f.Capped, ReadyCapped: f.ReadyCapped,
		Relay: newSide(f.Relay, seconds), Others: newSide(f.Others, seconds), Notes: []string{},
	}
	if f.Share != nil {
		at := f.Share.ChangedAt.UTC()
		k.Share, k.ChangedAt = &f.Share.Percent, &at
	}
	if known.DeletesDone {
		k.Relay.Done, k.Relay.DonePerSecond = nil, nil
	}
	if !known.DeletesDone && k.complete(f) {
		k.Percent = percent(f.Relay.Done+f.Relay.Dead, f.Others.Done+f.Others.Dead)
		k.PercentOfKeys = percent(f.Relay.Keys, f.Others.Keys)
		k.compareReach(f)
	}
	k.compareRoute(known)
	return k
}

func newSide(f claim.SideStats, seconds float64) Side {
	rate := 0.0
	if seconds > 0 {
		rate = float64(f.Done) / seconds
	}
	return Side{Done: &f.Done, DonePerSecond: &rate, Dead: f.Dead, Keys: f.Keys, Ready: f.Ready, OldestDueSeconds: f.OldestDueSeconds}
}

// percent is nil when there is nothing to divide.
func percent(relay, others int64) *float64 {
	if relay+others == 0 {
		return nil
	}
	p := math.Round(1000*float64(relay)/float64(relay+others)) / 10
	return &p
}

// complete says whether both sides can be counted. A side that owns a part and shows no done job beside many of the other
// has done nothing, or deletes what it did: that isn't 0 or 100 per cent.
func (k *KindShare) complete(f claim.KindStats) bool {
	share := 0
	if f.Share != nil {
		share = f.Share.Percent
	}
	switch {
	case share > 0 && f.Relay.Done == 0 && f.Others.Done > 0:
		k.note("no done job of a relay is there to count: none was at work, none of the jobs was theirs, or they delete what is done (RELAY_RETENTION=0; their metric relay_jobs_settled_total counts it)")
		return false
	case share < 100 && f.Others.Done == 0 && f.Relay.Done > 0:
		k.note("no done job of others is there to count: none was at work, none of the jobs was theirs, or they delete what is done")
		return false
	}
	return true
}

// fewest done jobs from which the age of the oldest says something.
const fewest = 20

// compareReach notices that one side's jobs are removed sooner than the other's.
func (k *KindShare) compareReach(f claim.KindStats) {
	span := f.At.Sub(f.Since)
	shorter := func(side, other claim.SideStats) bool {
		return side.Done >= fewest && other.Done >= fewest && side.Oldest.Sub(f.Since) > span/2 && other.Oldest.Sub(f.Since) < span/4
	}
	age := func(side claim.SideStats) time.Duration { return f.At.Sub(side.Oldest).Round(time.Second) }
	switch {
	case shorter(f.Relay, f.Others):
		k.note("done jobs of relays reach back %v, those of others %v: if relays keep them for less (RELAY_RETENTION), they did more than is counted", age(f.Relay), age(f.Others))
	case shorter(f.Others, f.Relay):
		k.note("done jobs of others reach back %v, those of relays %v: if others keep them for less, they did more than is counted", age(f.Others), age(f.Relay))
	}
}

// compareRoute holds the row against the route.
func (k *KindShare) compareRoute(known KindsKnown) {
	if known.Serves == nil {
		return
	}
	routed := known.Serves(k.Kind)
	k.Routed = &routed
	if percent, says := known.RouteShare(k.Kind); says {
		k.RouteShare = &percent
	}
	switch {
	case !routed && k.Share != nil && *k.Share > 0:
		k.note("no route leads anywhere: what relays own of it waits")
	case routed && k.Share == nil:
		k.note("no row yet: a relay writes its route's share before it first claims")
	case k.Share != nil && k.RouteShare != nil && *k.RouteShare != *k.Share:
		k.note("its route says share: %d; the row's %d holds", *k.RouteShare, *k.Share)
	}
}

func (k *KindShare) note(format string, args ...any) {
	k.Notes = append(k.Notes, fmt.Sprintf(format, args...))
}
