// Package outbox puts jobs into the relay's table, in the transaction of the business data that they belong to: both
// are committed, or neither is.
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, `INSERT INTO orders …`)
//	_, err = outbox.Enqueue(ctx, tx, outbox.Job{Kind: "order.created", Key: "order-17", Payload: order})
//	…
//	err = tx.Commit(ctx)
//
// [Enqueue] takes a pgx transaction, [EnqueueSQL] one of database/sql, with any driver for Postgres. Both take many
// jobs and send them in one round trip, with a guarded notification that wakes an idle relay at commit. A pool or a
// connection doesn't compile in place of the transaction: the job would be on its own.
//
// [EnqueueOrdered] is for routes that keep the order of keys, where nothing else serializes the producers of a key.
//
// A [Client] names another table, or leaves the notification out.
//
// What Postgres or the relay would refuse later is refused here, by an [*InvalidError] that names the job, the field
// and the rule, before the transaction is touched: it stays usable. errors.Is(err, [ErrInvalid]) tells that case from
// a failure of the database.
//
// The table can just as well be filled by plain SQL, from any language.
package outbox
