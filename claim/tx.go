package claim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// grace is how long a statement may go on after its context has ended. pgx closes a connection whose context ends while
// it is in use, and what the statement did is then unknown; nearly every statement ends within a few milliseconds.
const grace = 2 * time.Second

// unhurried gives a statement its own bound, and lets it end after ctx has ended.
func (s *Store) unhurried(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.Statement+grace)
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-detached.Done():
		}
	})
	return detached, func() { stop(); cancel() }
}

// transaction sends BEGIN, what queue adds, and COMMIT in one round trip. After an error nothing of it holds, unless the
// connection broke: then nobody knows.
func (s *Store) transaction(ctx context.Context, queue func(*pgx.Batch)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := s.unhurried(ctx)
	defer cancel()
	conn, err := s.db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	queue(b)
	b.Queue("commit")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		rollback(conn)
		return err
	}
	return nil
}

// read runs one statement that changes nothing, under the settings that keep index walks.
func (s *Store) read(ctx context.Context, sql string, args []any, rows func(pgx.Rows) error) error {
	return s.readWithin(ctx, s.opt.Statement, sql, args, rows)
}

// readWithin is read with a bound of its own, when that is shorter; see cutOff.
func (s *Store) readWithin(ctx context.Context, most time.Duration, sql string, args []any, rows func(pgx.Rows) error) error {
	return s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claimSettings, s.bound(most))
		b.Queue(sql, args...).Query(rows)
	})
}

// rollback ends what a failed batch left open, so that the connection can be used again.
func rollback(conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// Exec in the simple protocol: it must not depend on a cache that the failure may have spoiled. When it fails, the
	// pool throws the connection away.
	_, _ = conn.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol)
}

// timeout is the statement bound as the server's setting wants it.
func (s *Store) timeout() string { return s.bound(s.opt.Statement) }

func (s *Store) bound(most time.Duration) string {
	return strconv.FormatInt(max(min(most, s.opt.Statement).Milliseconds(), 1), 10)
}

// cutOff reports that Postgres ended a statement at its bound.
func cutOff(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == statementTimeout
}

const statementTimeout = "57014"
