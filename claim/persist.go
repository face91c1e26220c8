package claim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// persist runs a transaction that may be repeated, again and again until it is answered or ctx ends. unsure means that an
// earlier try may have been carried out although its answer was lost.
func (s *Store) persist(ctx context.Context, queue func(*pgx.Batch)) (unsure bool, err error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.transaction(ctx, queue)
		if err == nil || !passes(err) {
			return unsure, err
		}
		unsure = unsure || answerLost(err)
		s.opt.Log.Debug("database not available, trying again", "error", err)
		select {
		case <-ctx.Done():
			return unsure, errors.Join(err, context.Cause(ctx))
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// passes reports whether the same statement may go well later: the connection broke, the server is stopping or
// starting, is a standby, or two transactions got in each other's way.
func passes(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect):
		return true
	case !errors.As(err, &pg):
		return broken(err)
	}
	switch pg.Code[:2] {
	case "08", "40", "53", "57", "58":
		return true
	}
	switch pg.Code {
	case "25006", // read-only: a standby, or a primary that is being stepped down
		"25P02", "25P03", "25P04", // the transaction was ended for us
		"55P03",          // lock not available
		"0A000", "26000": // a cached plan or statement is gone: pgx forgets it at the first error
		return true
	}
	return false
}

// broken reports an error of the connection, not of the statement.
func broken(err error) bool {
	var network net.Error
	return errors.As(err, &network) || pgconn.Timeout(err) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
		pgconn.SafeToRetry(err)
}

// answerLost reports whether the transaction may have been carried out all the same.
func answerLost(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect), pgconn.SafeToRetry(err):
		return false
	case errors.As(err, &pg):
		// Postgres may have committed before it ended the session.
		return pg.Severity == "FATAL" || pg.Code[:2] == "08"
	}
	return true
}
