package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/internal/demo"
)

// show runs relay and shop until the end, and prints the summary.
func (d *demonstration) show(ctx context.Context, brokers []demo.Broker) error {
	if err := d.migrateUp(ctx); err != nil {
		return err
	}
	for _, b := range brokers {
		if err := b.Create(ctx, d.env); err != nil {
			return err
		}
		d.note("broker: %s", b.To)
	}
	if err := d.open(ctx); err != nil {
		return err
	}
	defer d.close()
	closeAdmin, err := d.openPage()
	if err != nil {
		return err
	}
	defer closeAdmin()
	if d.jobs == 0 {
		d.note("end: Ctrl-C, which drains and prints the summary")
	}
	shopDB, err := pool(context.WithoutCancel(ctx), string(d.DatabaseURL), demoConnections)
	if err != nil {
		return err
	}
	defer closePools(shopDB)
	d.begun = true
	failed := d.relayShop(ctx, shopDB)
	return d.conclude(shopDB, failed)
}

const demoConnections = 5

// openPage serves the admin page, on a free port when the usual one is taken.
func (d *demonstration) openPage() (closeAdmin func(), err error) {
	if d.AdminAddr == "" {
		return func() {}, nil
	}
	ln, err := listenAdmin(d.AdminAddr)
	if err != nil {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	d.note("page: http://%s/", ln.Addr())
	return d.serve(ln), nil
}

// relayShop runs the relay until the shop has closed and everything is delivered, then drains it.
func (d *demonstration) relayShop(ctx context.Context, shopDB *pgxpool.Pool) error {
	relayCtx, drain := context.WithCancel(context.WithoutCancel(ctx))
	relayed := make(chan error, 1)
	go func() { relayed <- d.relayUntil(relayCtx, d.abandon) }()

	shopCtx, closeShop := context.WithCancel(ctx)
	defer closeShop()
	stopShowing := d.showProgress()
	defer stopShowing()
	shopped := make(chan error, 1)
	go func() {
		d.untilReady(shopCtx)
		err := demo.Shop{DB: shopDB, Ledger: d.ledger, Jobs: d.jobs, Rate: d.rate}.Run(shopCtx)
		if err == nil {
			d.ledger.Wait(d.abandon, shopDB)
		}
		shopped <- err
	}()
	select {
	case err := <-shopped:
		drain()
		return errors.Join(err, <-relayed)
	case err := <-relayed: // it failed: nothing would be delivered any more
		closeShop()
		drain()
		if err == nil {
			err = errors.New("the relay ended early")
		}
		return err
	}
}

// untilReady waits for the relay, so that the first jobs' latency isn't that of its start.
func (d *demonstration) untilReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	for !d.stage.health().Ready() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// showProgress moves the bar until it is told to stop.
func (d *demonstration) showProgress() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			d.screen.Show(d.ledger.Progress())
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(quit); <-ended; d.screen.End() }
}

// conclude prints the summary.
func (d *demonstration) conclude(db *pgxpool.Pool, failed error) error {
	ctx, cancel := context.WithTimeout(context.Background(), questionTimeout)
	defer cancel()
	unsettled, err := demo.Unsettled(ctx, db)
	if failed == nil && err != nil {
		failed = err
	}
	summary := d.ledger.Summary(unsettled)
	if d.asJSON {
		err = printJSON(d.stdout, summary)
	} else {
		err = summary.Write(d.stderr)
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case !summary.Good():
		return fmt.Errorf("%d of %d committed jobs were not delivered, %d were that did not commit", summary.Lost, summary.Committed, summary.Phantoms)
	}
	return nil
}
