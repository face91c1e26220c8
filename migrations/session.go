package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// patience is how long one step tries to get its lock before Up gives up. What was done so far stays.
	patience = 10 * time.Minute
	// lockRetry is the first pause between two tries, doubled up to lockRetryMax: each try may hold others up for 100 ms,
	// so they get twice as much in between.
	lockRetry    = 200 * time.Millisecond
	lockRetryMax = 5 * time.Second
	// progressEvery is how often a long step says how far it is.
	progressEvery = 5 * time.Second
	// lockPing keeps the session that holds the advisory lock from looking idle, and notices when it's gone.
	lockPing = 15 * time.Second
)

// SQLSTATEs that mean: try again.
const (
	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
	wouldLoseData    = "RL001" // raised by the steps themselves
)

// session is one run of a command: its own few connections, set up so that nobody waits for them long.
type session struct {
	db  *sql.DB
	log *slog.Logger
}

// open prepares connections, each a session of its own; where a pooler shares sessions it is refused.
func open(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) (*session, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := plain(cfg)
	if err := unshared(ctx, c); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var last time.Time
	c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= progressEvery {
			last = time.Now()
			log.Info(n.Message)
		}
	}
	db := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, query("session"))
		return err
	}))
	db.SetMaxOpenConns(4) // the lock, goose, a step in Go, a look at what holds us up
	return &session{db: db, log: log}, nil
}

// plain is a connection that works behind any pooler: prepared statements would fail there, and nothing here runs twice.
func plain(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	c := cfg.Copy()
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "relay migrate"
	}
	return c
}

// sharedRounds is how often two connections compare their sessions. A busy pooler gives them the same one only now and then.
const sharedRounds = 20

// unshared returns ErrPooled when the connection leads through a pooler that gives a session to others after each
// transaction: what a migration sets, such as a lock_timeout, would be theirs, and its lock nobody's. A pooler is known
// by the process id that it gives out, which isn't the session's; one that leaves its clients a session each will do.
func unshared(ctx context.Context, c *pgx.ConnConfig) error {
	var conns [2]*pgx.Conn
	var own [2]uint32
	for i := range conns {
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if own[i], err = backend(ctx, conn); err != nil {
			return err
		}
		if own[i] == conn.PgConn().PID() {
			return nil
		}
		conns[i] = conn
	}
	for range sharedRounds {
		for i, conn := range conns {
			pid, err := backend(ctx, conn)
			if err != nil {
				return err
			}
			if pid != own[i] || own[0] == own[1] {
				return ErrPooled
			}
		}
	}
	return nil
}

// backend is the process id of the session that answers.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	if err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		err = fmt.Errorf("ask for the session: %w", err)
	}
	return pid, err
}

func (s *session) close() { s.db.Close() }

// locked runs fn while this session holds the advisory lock of the schema. It asks for the lock again and again rather
// than waiting in one statement: a statement that waits holds a snapshot, and an index build elsewhere waits for that.
func (s *session) locked(ctx context.Context, n names, fn func(context.Context) error) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if err := s.lock(ctx, conn, n); err != nil {
		return fmt.Errorf("take the migration lock of schema %s: %w", n.schema, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		keep(ctx, conn, stop, cancel)
	}()
	defer func() {
		close(stop)
		<-done
		cancel(nil)
		// Closing the session gives the lock back as well; this makes it immediate.
		free, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_, _ = conn.ExecContext(free, `SELECT pg_advisory_unlock_all()`)
	}()
	if err := fn(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", err, cause)
		}
		return err
	}
	return nil
}

func (s *session) lock(ctx context.Context, conn *sql.Conn, n names) error {
	for waited := false; ; waited = true {
		var ok bool
		err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, "relay migrate "+n.schema).Scan(&ok)
		if ok || err != nil {
			return err
		}
		if !waited {
			s.log.Info("another migration of this schema is running, waiting for it", "schema", n.schema)
		}
		if err := sleep(ctx, lockRetry); err != nil {
			return err
		}
	}
}

// keep pings the session that holds the lock, and cancels the work when it is gone: somebody else may hold it then.
func keep(ctx context.Context, conn *sql.Conn, stop <-chan struct{}, cancel context.CancelCauseFunc) {
	t := time.NewTicker(lockPing)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-t.C:
			if err := conn.PingContext(ctx); err != nil {
				cancel(fmt.Errorf("the session that holds the migration lock is gone: %w", err))
				return
			}
		}
	}
}

// patiently runs fn again while the table is held by others, and says who holds it: also where ctx ends in the middle of
// a try, by what the try before met.
func (s *session) patiently(ctx context.Context, n names, what string, fn func(context.Context) error) error {
	start, pause := time.Now(), lockRetry
	var met error // by the last try that met somebody
	var by string
	for try := 1; ; try++ {
		switch err := fn(ctx); {
		case held(err):
			met, by = err, cmp.Or(s.blockers(ctx, n), by)
			if try >= 5 {
				s.log.Warn("the table is held by others, trying again", "table", n.String(), "step", what, "attempt", try, "held", by)
			}
		case err == nil || met == nil || ctx.Err() == nil:
			return err
		}
		ended := sleep(ctx, pause+rand.N(pause/2))
		if held := time.Since(start); ended != nil || held > patience {
			return fmt.Errorf("%w: %s has been held for %s%s; end that session or try later, what is done stays: %w",
				ErrBusy, n, held.Round(time.Second), by, errors.Join(met, ended))
		}
		pause = min(2*pause, lockRetryMax)
	}
}

func held(err error) bool {
	code := sqlState(err)
	return code == lockNotAvailable || code == deadlockDetected
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// blockers describes who holds the table; a best effort, empty when it can't be told.
func (s *session) blockers(ctx context.Context, n names) string {
	rows, err := s.db.QueryContext(ctx, query("blockers"), n.quoted())
	if err != nil {
		return ""
	}
	out := ""
	_ = each(rows, func() error {
		var pid int
		var app, state string
		var age float64
		if err := rows.Scan(&pid, &app, &state, &age); err != nil {
			return err
		}
		out += fmt.Sprintf(" by pid %d (%s, %s, transaction of %.0f s)", pid, app, state, age)
		return nil
	})
	return out
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
