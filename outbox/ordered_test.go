package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// Two producers of one key, the first of which commits late. What a reader sees before it has ended: without the lock the
// later job alone, which is then delivered first; with it nothing.
func TestOrderedProducersOfOneKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		enqueue  func(context.Context, outbox.Tx, ...outbox.Job) ([]int64, error)
		inverted bool
	}{
		"without": {outbox.Enqueue, true},
		"with":    {outbox.EnqueueOrdered, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ctx := t.Context()
			job := outbox.Job{Kind: "k", Key: "one", Payload: 1}
			first, err := db.Pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Rollback(context.Background())
			a, err := c.enqueue(ctx, first, job)
			if err != nil {
				t.Fatal(err)
			}
			var second sync.WaitGroup
			var b []int64
			second.Go(func() {
				err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) (err error) {
					b, err = c.enqueue(ctx, tx, job)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
			waits := func() bool {
				return testdb.One[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted AND a.query LIKE '%relay_key_lock%' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
			}
			seen := func() []int64 { return testdb.Column[int64](t, db, `SELECT id FROM jobs ORDER BY id`) }
			deadline := time.Now().Add(time.Minute)
			for !waits() && len(seen()) == 0 {
				if time.Now().After(deadline) {
					t.Fatal("the second producer neither waits nor commits")
				}
			}
			if got := seen(); (len(got) > 0) != c.inverted {
				t.Errorf("before the first has committed a reader sees %v", got)
			}
			if err := first.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			second.Wait()
			if got, want := seen(), append(a, b...); !slices.Equal(got, want) {
				t.Errorf("in the end: %v, want %v", got, want)
			}
		})
	}
}

// Transactions that take several keys don't deadlock, in whatever order their jobs come; jobs without a key wait for
// nobody; database/sql does the same.
func TestOrderedProducersDontDeadlock(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	std := stdlib.OpenDBFromPool(db.Pool)
	defer std.Close()
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			jobs := []outbox.Job{{Kind: "k", Key: "a", Payload: 1}, {Kind: "k", Key: "b", Payload: 1}, {Kind: "k", Payload: 1}, {Kind: "k", Key: "ä, \"c\"\\", Payload: 1}}
			if w%2 == 0 {
				slices.Reverse(jobs)
			}
			for range 20 {
				if w < 3 {
					if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
						_, err := outbox.EnqueueOrdered(t.Context(), tx, jobs...)
						return err
					}); err != nil {
						t.Error(err)
					}
					continue
				}
				tx, err := std.BeginTx(t.Context(), &sql.TxOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err = outbox.EnqueueOrderedSQL(t.Context(), tx, jobs...); err == nil {
					err = tx.Commit()
				}
				if err != nil {
					t.Error(err)
					_ = tx.Rollback()
				}
			}
		})
	}
	all.Wait()
	if n := testdb.One[int](t, db, `SELECT count(*)::int FROM jobs`); n != 6*20*4 {
		t.Errorf("%d jobs, want %d", n, 6*20*4)
	}
}

// The lock lives in the table's schema.
func TestOrderedInASchema(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	c := outbox.Client{Table: db.Schema + ".jobs"}
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = pg_catalog`); err != nil {
			return err
		}
		_, err := c.EnqueueOrdered(t.Context(), tx, outbox.Job{Kind: "k", Key: "a", Payload: 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// As many keys as a call may have go in; one more is refused by number, and the transaction goes on.
func TestOrderedManyKeys(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	jobs := func(n int) (jobs []outbox.Job) {
		for i := range 2 * n { // two of each key
			jobs = append(jobs, outbox.Job{Kind: "k", Key: fmt.Sprint("key ", i%n), Payload: i})
		}
		return jobs
	}
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := outbox.EnqueueOrdered(t.Context(), tx, jobs(outbox.MaxOrderedKeys+1)...)
		if !errors.Is(err, outbox.ErrTooManyKeys) || !strings.Contains(err.Error(), "1001") || !strings.Contains(err.Error(), "at most 1000") {
			t.Errorf("got %v, want ErrTooManyKeys with both numbers", err)
		}
		_, err = outbox.EnqueueOrdered(t.Context(), tx, jobs(outbox.MaxOrderedKeys)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs`); n != 2*outbox.MaxOrderedKeys {
		t.Errorf("%d jobs, want %d", n, 2*outbox.MaxOrderedKeys)
	}
}

// full is a transaction of a server whose lock table is full, as a driver reports it.
type full struct{ pgx.Tx }

func (full) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, &pgconn.PgError{Code: "53200", Message: "out of shared memory"}
}

func TestOrderedWhenLocksAreOut(t *testing.T) {
	t.Parallel()
	_, err := outbox.EnqueueOrdered(t.Context(), full{}, outbox.Job{Kind: "k", Key: "a", Payload: 1}, outbox.Job{Kind: "k", Key: "b", Payload: 1})
	var pg *pgconn.PgError
	if !errors.Is(err, outbox.ErrTooManyKeys) || !errors.As(err, &pg) || !strings.Contains(err.Error(), "lock 2 keys") {
		t.Errorf("got %v, want ErrTooManyKeys, what Postgres said, and the number", err)
	}
}

// Producers of different keys don't wait for each other, however many keys each has.
func TestOrderedProducersOfOtherKeys(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var all []pgx.Tx
	for p := range 4 {
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		var jobs []outbox.Job
		for i := range 250 {
			jobs = append(jobs, outbox.Job{Kind: "k", Key: fmt.Sprintf("%s %d of %d", db.Schema, i, p), Payload: i})
		}
		if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '10s'`); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.EnqueueOrdered(t.Context(), tx, jobs...); err != nil {
			t.Fatalf("producer %d beside %d open ones: %v", p, len(all), err)
		}
		all = append(all, tx)
	}
}
