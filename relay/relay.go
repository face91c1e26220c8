package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a [Relay]. Store, Routes and Sinks are required.
type Config struct {
	Store    *claim.Store          // with the batch's bounds and the lease
	Listener *claim.Listener       // nil: polling only
	Routes   []Route               // in order: the first that matches a kind wins
	Sinks    map[string]sinks.Sink // by name, every one that a route names; the caller closes them after Run

	Source         string        // first half of the message id; required
	Workers        int           // per lane; default 4
	Lease          time.Duration // as the Store's; default 1m
	PublishTimeout time.Duration // default 20s; less than Lease
	PollMin        time.Duration // default 5ms
	PollMax        time.Duration // default 1s
	RetryBase      time.Duration // default 10s
	RetryMax       time.Duration // default 1h
	Retention      time.Duration // how long done jobs are kept; 0: the Store deletes them as they settle
	RetentionDead  time.Duration // how long dead jobs are kept; 0: for ever
	DrainTimeout   time.Duration // default 25s

	Registerer prometheus.Registerer // default: a registry of its own
	Log        *slog.Logger          // default: discard
}

// Route says where the jobs of some kinds go. Compile with [NewRouter] to see what is wrong with a list of them.
type Route struct {
	Kind  string   // exact, or with * for any run of characters; \* is a star
	To    []string // destinations sink:address; the address may hold {kind}, {key}, {header.NAME}, {{ is a brace
	Order string   // "" or "none"
	Share int      // percentage of the keys that the relay owns, written when a kind is first seen; 0 means 100
}

// Relay relays. Make one with [New], start it with Run, once.
type Relay struct{}

// New checks the configuration; it connects to nothing.
func New(c Config) (*Relay, error) { panic("unwritten") }

// ErrGaveUp is what Run returns when it could not drain: some jobs in flight were left to their leases.
var ErrGaveUp error

// Run relays until ctx ends, then drains: it claims nothing more, ends what is in flight and releases the rest within
// DrainTimeout. abandon, when it ends, cuts the drain short. It returns nil after a clean drain and [ErrGaveUp]
// otherwise. While the database is away it waits and says so in Health.
func (r *Relay) Run(ctx, abandon context.Context) error { panic("unwritten") }

// Health is what readiness shows.
type Health struct {
	Database     string              `json:"database"`     // "ok" or the reason
	Draining     bool                `json:"draining"`     //
	Listener     string              `json:"listener"`     // "ok", "off" or the reason
	Sinks        map[string]State    `json:"sinks"`        // by name
	Destinations map[string]State    `json:"destinations"` // by the route's form; the worst of its expanded addresses
	Lanes        map[string][]string `json:"-"`
}

// State of a sink or destination.
type State struct {
	Up     bool      `json:"up"`
	Reason string    `json:"reason,omitempty"` // the error that paused it
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"next_try,omitzero"`
}

// Ready: the database is usable and the relay doesn't drain.
func (h Health) Ready() bool { return h.Database == "ok" && !h.Draining }

// Health may be called at any time, also before and after Run. It doesn't block.
func (r *Relay) Health() Health { panic("unwritten") }

// Serves says whether a route matches the kind.
func (r *Relay) Serves(kind string) bool { panic("unwritten") }
