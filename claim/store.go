package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options configure a [Store]; the zero value works.
type Options struct {
	Table      string        // may name a schema; default "jobs"
	Lease      time.Duration // at least a millisecond; default 1m
	BatchSize  int           // rows of one claim, at most 10,000; default 500
	BatchBytes int64         // payload bytes of one claim, at least one job is taken; default 8 MiB
	DeleteDone bool          // done jobs are deleted as they settle (retention 0)
	Statement  time.Duration // bound of one statement; default 30s
	Log        *slog.Logger  // default: discard
}

func (o Options) withDefaults() Options {
	if o.Table == "" {
		o.Table = "jobs"
	}
	if o.Lease == 0 {
		o.Lease = time.Minute
	}
	if o.BatchSize == 0 {
		o.BatchSize = 500
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 8 << 20
	}
	if o.Statement == 0 {
		o.Statement = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Lease < time.Millisecond:
		return fmt.Errorf("lease %v: at least 1ms", o.Lease)
	case o.BatchSize < 1 || o.BatchSize > 10_000:
		return fmt.Errorf("batch size %d: 1 to 10,000", o.BatchSize)
	case o.BatchBytes < 1:
		return fmt.Errorf("batch bytes %d: at least 1", o.BatchBytes)
	case o.Statement < time.Millisecond:
		return fmt.Errorf("statement timeout %v: at least 1ms", o.Statement)
	}
	return nil
}

// Store runs the statements on one jobs table. Its methods may be called at once.
type Store struct {
	db  *pgxpool.Pool
	opt Options
	sql statements
}

// New checks the options. It doesn't connect.
func New(db *pgxpool.Pool, o Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("claim: no database")
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	sql, err := statementsFor(o.Table)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return &Store{db: db, opt: o, sql: sql}, nil
}

// Options returns what the store was made with, defaults filled in.
func (s *Store) Options() Options { return s.opt }
