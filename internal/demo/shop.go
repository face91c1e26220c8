package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/outbox"
)

//go:embed orders.sql
var ordersSQL string

//go:embed order.sql
var orderSQL string

// Shop is an application: each customer writes an order and the jobs that follow from it in one transaction, and
// changes their mind in about a third of them.
type Shop struct {
	DB     *pgxpool.Pool
	Ledger *Ledger
	Jobs   int // committed ones after which it closes; 0: when ctx ends
	Rate   int // committed jobs a second, about; 0: as fast as it goes
}

// Schema is where the demo keeps its tables, Table its jobs.
const (
	Schema = "relay_demo"
	Table  = Schema + ".jobs"
)

const (
	customers    = 4
	orderTimeout = 15 * time.Second
)

// errChangedMind rolls an order back.
var errChangedMind = errors.New("the customer changed their mind")

// Run opens the shop until so many jobs have committed or ctx ends.
func (s Shop) Run(ctx context.Context) error {
	if _, err := s.DB.Exec(ctx, ordersSQL); err != nil {
		return ended(ctx, fmt.Errorf("creating the table of orders: %w", err))
	}
	open := &counter{left: s.Jobs, endless: s.Jobs == 0}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for range customers {
		all.Go(func() {
			if err := s.customer(ctx, open); err != nil {
				fail(err)
			}
		})
	}
	all.Wait()
	return ended(ctx, nil)
}

// ended tells a failure from the end that was asked for.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return nil
	}
	return cause
}

// customer buys until the shop closes.
func (s Shop) customer(ctx context.Context, open *counter) error {
	for ctx.Err() == nil {
		n, more := open.take(1 + rand.IntN(3))
		if !more {
			return nil
		}
		if n == 0 { // others are about to commit the last ones, or to give them back
			pause(ctx, time.Millisecond)
			continue
		}
		committed, err := s.order(ctx, n)
		open.settle(n, committed)
		if err != nil {
			return err
		}
		if s.Rate > 0 {
			pause(ctx, time.Duration(rand.ExpFloat64()*float64(n*customers)/float64(s.Rate)*float64(time.Second)))
		}
	}
	return nil
}

// order writes one order with n jobs. It finishes what it has begun when ctx ends: a commit that is cut off may have
// happened or not, and then nobody could say what was lost.
func (s Shop) order(ctx context.Context, n int) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderTimeout)
	defer cancel()
	var ids []int64
	var asked time.Time
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		var order int64
		cents := 100 + rand.IntN(50_000)
		if err := tx.QueryRow(ctx, orderSQL, cents).Scan(&order); err != nil {
			return fmt.Errorf("writing an order: %w", err)
		}
		ids, err = outbox.Client{Table: Table}.Enqueue(ctx, tx, jobsOf(order, cents)[:n]...)
		if err != nil {
			return err
		}
		if rand.IntN(3) == 0 {
			return errChangedMind
		}
		asked = time.Now()
		return nil
	})
	switch {
	case errors.Is(err, errChangedMind):
		s.Ledger.RolledBack(ids)
		return false, nil
	case err != nil:
		return false, err
	}
	s.Ledger.Committed(ids, asked)
	return true, nil
}

// Kinds are the kinds of the shop's jobs.
var Kinds = []string{"order.placed", "order.paid", "order.receipt"}

// jobsOf are the jobs that may follow from an order, the first always.
func jobsOf(order int64, cents int) []outbox.Job {
	key := fmt.Sprintf("order-%d", order)
	euros := fmt.Sprintf("%d.%02d", cents/100, cents%100)
	return []outbox.Job{
		{Kind: Kinds[0], Key: key, Payload: map[string]any{"order": order, "total": euros}},
		{Kind: Kinds[1], Key: key, Payload: map[string]any{"order": order, "total": euros}, Headers: map[string]any{"method": "card"}},
		{Kind: Kinds[2], Key: key, Payload: map[string]any{"order": order, "to": "customer@shop.example"}},
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// counter hands out jobs so that exactly as many commit as were wanted.
type counter struct {
	mu      sync.Mutex
	left    int // not yet handed out
	out     int // handed out, neither committed nor given back
	endless bool
}

// take hands out up to n; more is false when all have committed.
func (c *counter) take(n int) (got int, more bool) {
	if c.endless {
		return n, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	got = min(n, c.left)
	c.left -= got
	c.out += got
	return got, c.out > 0
}

func (c *counter) settle(n int, committed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out -= n
	if !committed {
		c.left += n
	}
}
