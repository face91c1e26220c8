package claim

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options configure a [Store]; the zero value works.
type Options struct {
	Table      string        // may name a schema; default "jobs"
	Lease      time.Duration // default 1m
	BatchSize  int           // rows of one claim; default 500
	BatchBytes int64         // payload bytes of one claim, at least one job is taken; default 8 MiB
	DeleteDone bool          // done jobs are deleted as they settle (retention 0)
	Statement  time.Duration // bound of one statement; default 30s
	Log        *slog.Logger  // default: discard
}

// Store runs the statements on one jobs table. Its methods may be called at once.
type Store struct{}

// New checks the options. It doesn't connect.
func New(db *pgxpool.Pool, o Options) (*Store, error) { panic("unwritten") }

// Queue is one process's view of the due jobs of the kinds that it serves. Kinds that serves refuses are somebody
// else's: they are never claimed, reaped or cleaned up. serves must be quick and give one answer per kind.
func (s *Store) Queue(serves func(kind string) bool) *Queue { panic("unwritten") }

// Queue claims and settles. Its methods may be called at once.
type Queue struct{}

// Claim takes due jobs for one worker: at most BatchSize rows and BatchBytes bytes, kinds sharing fairly, the larger
// priority first within a kind, sorted by id. gate is asked once per known pair. No rows and no error: nothing is due
// as far as the floors tell; the sweep covers the rest. It is one round trip and one short transaction. After an
// error nothing is claimed, or what was claimed ends with its lease.
func (q *Queue) Claim(ctx context.Context, gate func(Pair) Gate) ([]Lease, error) {
	panic("unwritten")
}

// Extend renews the leases for another full length and moves Until in each that is still ours; it returns the ids of
// those that are lost: somebody else may have claimed them.
func (q *Queue) Extend(ctx context.Context, leases []*Lease) (lost []int64, err error) {
	panic("unwritten")
}

// Settle writes what became of the leases, in one durable transaction, fenced by id and token. It returns the ids on
// which it changed nothing because the lease was lost. It is sent again after a broken connection, until ctx ends;
// what doesn't match then is no lost lease. Released jobs lower the floors, so they are claimed again at once.
func (q *Queue) Settle(ctx context.Context, outcomes []Outcome) (lost []int64, err error) {
	panic("unwritten")
}

// Swept is what one call of Sweep did.
type Swept struct {
	Due    int            // due jobs found below a floor (they can be claimed now); when > 0 call Sweep again soon
	Reaped map[string]int // expired leases that ended, by kind
	Dead   map[string]int // those of them that are dead, their attempts used up, by kind
	Pairs  int            // known pairs
	// Slow says why sweeps are costly, "" when they aren't: who holds an old snapshot.
	Slow string
}

// Sweep does one slice of the work that claims leave out: it looks for new pairs, for due jobs below the floors, and
// for expired leases, which it gives back or lets die (`lease expired`). Call it once a second.
func (q *Queue) Sweep(ctx context.Context) (Swept, error) { panic("unwritten") }

// Reset forgets the floors of the pairs for which match is true: after a destination has come back.
func (q *Queue) Reset(match func(kind string) bool) { panic("unwritten") }

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
