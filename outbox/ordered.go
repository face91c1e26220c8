package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed key_lock.sql
var keyLockSQL string

// MaxOrderedKeys bounds the keys of one call of EnqueueOrdered: a seventh of what Postgres' lock table holds by default.
const MaxOrderedKeys = 1000

// EnqueueOrdered calls [Client.EnqueueOrdered] of the zero Client.
func EnqueueOrdered(ctx context.Context, tx Tx, jobs ...Job) ([]int64, error) {
	return Client{}.EnqueueOrdered(ctx, tx, jobs...)
}

// EnqueueOrderedSQL calls [Client.EnqueueOrderedSQL] of the zero Client.
func EnqueueOrderedSQL(ctx context.Context, tx SQLTx, jobs ...Job) ([]int64, error) {
	return Client{}.EnqueueOrderedSQL(ctx, tx, jobs...)
}

// EnqueueOrdered is [Client.Enqueue] for routes that keep the order of keys. It first waits until no other transaction
// that enqueues by it, or that called relay_key_lock, holds one of the jobs' keys, and holds them until this one ends.
//
// Ids are given at INSERT and seen at COMMIT: without the lock a job with the larger id may be seen, and delivered, before
// one with the smaller id of the same key is committed. Producers that hold a lock for the key anyway (the row of its
// order, its customer) need no other. It costs one round trip more; jobs without a key wait for nobody. Enqueue the jobs
// of one transaction in one call, or the calls of two transactions may wait for each other, which Postgres ends with an
// error in one of them.
//
// Every key is a lock in a table that all sessions of the server share, some 7,000 by default. So a call takes at most
// [MaxOrderedKeys] keys; more give [ErrTooManyKeys], and the transaction is as it was.
func (c Client) EnqueueOrdered(ctx context.Context, tx Tx, jobs ...Job) ([]int64, error) {
	return c.enqueueOrdered(jobs, onTx(ctx, tx))
}

// EnqueueOrderedSQL is EnqueueOrdered for database/sql.
func (c Client) EnqueueOrderedSQL(ctx context.Context, tx SQLTx, jobs ...Job) ([]int64, error) {
	return c.enqueueOrdered(jobs, onSQLTx(ctx, tx))
}

func (c Client) enqueueOrdered(jobs []Job, query query) ([]int64, error) {
	rows, err := check(jobs)
	if err != nil {
		return nil, err
	}
	if keys := keysOf(rows); len(keys) > 0 {
		if len(keys) > MaxOrderedKeys {
			return nil, fmt.Errorf("enqueue: %w: %d, at most %d; spread them over several transactions, or hold another lock that serializes their producers and use Enqueue",
				ErrTooManyKeys, len(keys), MaxOrderedKeys)
		}
		statement, err := c.keyLock()
		if err != nil {
			return nil, err
		}
		var list array
		for i := range keys {
			list.text(&keys[i])
		}
		if _, err := query(statement, []any{list.end()}); err != nil {
			return nil, lockFailed(len(keys), err)
		}
	}
	return c.insert(rows, query)
}

// lockFailed explains what fills Postgres' lock table: its own hint names a setting, not the keys.
func lockFailed(keys int, err error) error {
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) && pg.SQLState() == outOfMemory {
		return fmt.Errorf("enqueue: lock %d keys: %w: the server's lock table is full with those of all open transactions: %w", keys, ErrTooManyKeys, err)
	}
	return fmt.Errorf("enqueue: lock %d keys: %w", keys, err)
}

// outOfMemory is what Postgres says of its lock table as well ("out of shared memory").
const outOfMemory = "53200"

// keysOf lists each key once, sorted.
func keysOf(rows []row) (keys []string) {
	for i := range rows {
		if k := rows[i].key; k != nil {
			keys = append(keys, *k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keyLock returns the SQL that locks keys.
func (c Client) keyLock() (string, error) {
	name, err := c.table()
	if err != nil {
		return "", err
	}
	lock := append(slices.Clone(name[:len(name)-1]), "relay_key_lock")
	text := oneLine(keyLockSQL, func(string) bool { return true })
	return strings.Replace(text, "relay_key_lock(", pgx.Identifier(lock).Sanitize()+"(", 1), nil
}
