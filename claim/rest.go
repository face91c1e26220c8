package claim

import (
	"context"
	"log/slog"
	"time"
)

// Clean removes finished jobs of the served kinds that carry a token: done ones older than done, dead ones older than
// dead (0: keep for ever), in batches of 1,000, each a short transaction. It returns how many went.
func (q *Queue) Clean(ctx context.Context, done, dead time.Duration) (int64, error) {
	panic("unwritten")
}

// Listener wakes on enqueue notifications. Run returns when ctx ends; it reconnects by itself, with backoff, and calls
// wake after each connect and at each notification, and up(true|false) as its state changes. It has a connection of
// its own and proves by itself that it still listens.
type Listener struct {
	URL   string        // a direct connection, no transaction pooler
	Table string        // default "jobs"; the channel is <table>_ready
	Check time.Duration // how often it checks itself; default 15s
	Log   *slog.Logger
}

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context, wake func(), up func(bool)) { panic("unwritten") }

// Figures is what status, metrics and the page show. Counts per kind stop at CountLimit.
type Figures struct {
	At             time.Time
	LagSeconds     float64 // age of the oldest due job of a served kind
	DeadTuples     int64
	OldestSnapshot *Snapshot
	Kinds          []KindFigures // sorted by kind
}

// Snapshot is the oldest open snapshot of the database that keeps vacuum from cleaning up.
type Snapshot struct {
	PID         int     `json:"pid"`
	AgeSeconds  float64 `json:"age_seconds"`
	State       string  `json:"state"`
	Application string  `json:"application"`
}

// KindFigures are the counts of one kind; Due are those of Ready whose time has come.
type KindFigures struct {
	Kind             string
	Ready, Due       int64
	Running, Dead    int64
	OldestDueSeconds float64
	Capped           bool // at least one count stopped at the limit
}

// CountLimit bounds how many rows per kind and status are counted.
const CountLimit = 100_000

// Figures reads them with bounded work, in a read-only transaction of at most a few seconds.
func (s *Store) Figures(ctx context.Context) (Figures, error) { panic("unwritten") }

// Filter chooses dead jobs; empty fields match everything.
type Filter struct {
	Kind, Key    string
	HasKey       bool   // Key is meant, also when it is ""
	Error        string // part of last_error
	Since, Until time.Time
	IDs          []int64
	Limit        int // 0: no limit
}

// DeadJob is a dead job as an operator sees it.
type DeadJob struct {
	ID          int64
	Kind        string
	Key         *string
	Attempts    int
	MaxAttempts int
	LastError   string
	CreatedAt   time.Time // zero when NULL
	FinishedAt  time.Time
	Delivered   []string
	Headers     []byte // only with Get
	Payload     []byte // only with Get
	Body        []byte // only with Get
}

// Changed counts what an operator's command did.
type Changed struct{ Changed, Skipped, NotFound int64 }

// ListDead calls each for the dead jobs that match, oldest id first.
func (s *Store) ListDead(ctx context.Context, f Filter, each func(DeadJob) error) error {
	panic("unwritten")
}

// GetDead returns one dead job whole; false when there is none with this id.
func (s *Store) GetDead(ctx context.Context, id int64) (DeadJob, bool, error) { panic("unwritten") }

// RequeueDead gives the dead jobs that match a full new round: attempts 0, due now, in batches. With dryRun it only
// counts. When ctx ends it returns what was done so far together with the error.
func (s *Store) RequeueDead(ctx context.Context, f Filter, dryRun bool) (Changed, error) {
	panic("unwritten")
}

// DiscardDead deletes the dead jobs that match, in batches, otherwise like RequeueDead.
func (s *Store) DiscardDead(ctx context.Context, f Filter, dryRun bool) (Changed, error) {
	panic("unwritten")
}

type cleaner struct{}
