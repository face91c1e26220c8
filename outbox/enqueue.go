package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Tx is a pgx transaction. It asks for Commit and Rollback, which it never calls, so that nothing passes that would
// insert a job outside of a transaction: no pool, no connection.
type Tx interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLTx is a database/sql transaction, with any driver for Postgres. It asks for Commit and Rollback as [Tx] does.
type SQLTx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Client enqueues into a table. The zero value is ready to use; it may be copied and used by many goroutines.
type Client struct {
	// Table is the jobs table, "table" or "schema.table", its letters meant as they are. Default "jobs", found by the
	// connection's search_path.
	Table string

	// NoNotify leaves it to the relay's polling to find the jobs: a little cheaper, and up to POLL_MAX later. Default
	// false.
	NoNotify bool
}

// Enqueue calls [Client.Enqueue] of the zero Client.
func Enqueue(ctx context.Context, tx Tx, jobs ...Job) ([]int64, error) {
	return Client{}.Enqueue(ctx, tx, jobs...)
}

// EnqueueSQL calls [Client.EnqueueSQL] of the zero Client.
func EnqueueSQL(ctx context.Context, tx SQLTx, jobs ...Job) ([]int64, error) {
	return Client{}.EnqueueSQL(ctx, tx, jobs...)
}

// Enqueue inserts the jobs in the transaction and returns their ids in the order given. It takes one round trip for
// each 1,000 jobs or 8 MiB, and for each change between jobs with and without MaxAttempts. No jobs are no work.
//
// A job that can't be enqueued gives an [*InvalidError]: none of the jobs is inserted and the transaction is as it
// was. After another error Postgres has aborted the transaction.
func (c Client) Enqueue(ctx context.Context, tx Tx, jobs ...Job) ([]int64, error) {
	return c.enqueue(jobs, onTx(ctx, tx))
}

// EnqueueSQL is Enqueue for database/sql.
func (c Client) EnqueueSQL(ctx context.Context, tx SQLTx, jobs ...Job) ([]int64, error) {
	return c.enqueue(jobs, onSQLTx(ctx, tx))
}

// query runs a statement that returns one column of ids.
type query func(statement string, args []any) ([]int64, error)

func onTx(ctx context.Context, tx Tx) query {
	return func(statement string, args []any) ([]int64, error) {
		rows, err := tx.Query(ctx, statement, args...)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	}
}

func onSQLTx(ctx context.Context, tx SQLTx) query {
	return func(statement string, args []any) ([]int64, error) {
		rows, err := tx.QueryContext(ctx, statement, args...)
		if err != nil {
			return nil, err
		}
		return collect(rows)
	}
}

func collect(rows *sql.Rows) (ids []int64, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// enqueue checks all jobs before query sends any.
func (c Client) enqueue(jobs []Job, query query) ([]int64, error) {
	rows, err := check(jobs)
	if err != nil {
		return nil, err
	}
	return c.insert(rows, query)
}

func (c Client) insert(rows []row, query query) ([]int64, error) {
	ids := make([]int64, 0, len(rows))
	for len(rows) > 0 {
		n := nextStatement(rows)
		statement, err := c.statement(rows[0].maxAttempts != 0)
		if err != nil {
			return nil, err
		}
		got, err := query(statement, arguments(rows[:n]))
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		if len(got) != n {
			return nil, fmt.Errorf("enqueue: %d of %d jobs were inserted; does the table have a rule or trigger that drops rows?", len(got), n)
		}
		slices.Sort(got) // given in ascending order, returned in any
		ids, rows = append(ids, got...), rows[n:]
	}
	return ids, nil
}
