// Package misuse must not compile: each call passes something that isn't a transaction.
package misuse

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/outbox"
)

func misuse(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, pooled *pgxpool.Conn, db *sql.DB, sqlConn *sql.Conn, tx pgx.Tx, sqlTx *sql.Tx) {
	outbox.Enqueue(ctx, pool)       // refused
	outbox.Enqueue(ctx, conn)       // refused
	outbox.Enqueue(ctx, pooled)     // refused
	outbox.Enqueue(ctx, sqlTx)      // refused
	outbox.EnqueueSQL(ctx, db)      // refused
	outbox.EnqueueSQL(ctx, sqlConn) // refused
	outbox.EnqueueSQL(ctx, tx)      // refused

	outbox.Enqueue(ctx, tx)
	outbox.EnqueueSQL(ctx, sqlTx)
}
