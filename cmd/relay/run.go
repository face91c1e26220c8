package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/internal/version"
	"github.com/jobrelay/relay/migrations"
	"github.com/jobrelay/relay/sinks"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func runCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the relay",
		Long: `Run the relay: claim due jobs, publish them where their routes lead, settle each by what the broker said.

SIGTERM or SIGINT drains: nothing more is claimed, what is in flight ends, the rest is released; exit 0, or 1 when
RELAY_DRAIN_TIMEOUT was not enough. A second signal gives up at once. A database that is away, starting or read-only
is waited for.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.run(c.Context()) },
	}
}

// service is one relay with what surrounds it.
type service struct {
	*settings
	registry *prometheus.Registry
	stage    stage
	db       *pgxpool.Pool // claims and settles
	adminDB  *pgxpool.Pool // figures
	sinks    map[string]sinks.Sink
	work     sync.WaitGroup
}

// run is the life of the deployed relay.
func (a *app) run(ctx context.Context) error {
	s, err := a.load(config.Need{DatabaseURL: true, Routes: true})
	if err != nil {
		return err
	}
	v := &service{settings: s, registry: newRegistry()}
	v.log.Info("relay starts", "version", version.Get().Version, "sinks", v.used(), "routes", len(v.routes))
	if err := v.open(ctx); err != nil {
		return err
	}
	defer v.close()
	closeAdmin, err := v.serveAdmin()
	if err != nil {
		return err
	}
	defer closeAdmin()
	return v.relayUntil(ctx, a.abandon)
}

// open makes the parts that don't connect by themselves.
func (v *service) open(ctx context.Context) (err error) {
	// The pools must outlive ctx, which ends when the drain begins.
	lasting := context.WithoutCancel(ctx)
	if v.db, err = pool(lasting, string(v.DatabaseURL), v.DatabaseConnections); err != nil {
		return err
	}
	if v.adminDB, err = pool(lasting, string(v.DatabaseURL), adminConnections); err != nil {
		return err
	}
	v.sinks, err = v.openSinks()
	return err
}

func (v *service) close() {
	closeSinks(v.sinks, v.log)
	closePools(v.db, v.adminDB)
}

// closePools closes them within a bound: a server that hangs would hold them up.
func closePools(pools ...*pgxpool.Pool) {
	var all sync.WaitGroup
	for _, p := range pools {
		all.Go(p.Close)
	}
	closed := make(chan struct{})
	go func() { all.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
}

// relayUntil waits for the database and relays until ctx ends.
func (v *service) relayUntil(ctx, abandon context.Context) error {
	if err := v.await(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before there was anything to drain
		}
		return explain(err)
	}
	store, err := v.store(v.db)
	if err != nil {
		return err
	}
	figures, err := v.store(v.adminDB)
	if err != nil {
		return err
	}
	r, err := v.relay(store, v.sinks, v.Source, v.registry)
	if err != nil {
		return err
	}
	stats := ops.NewStats(ops.StatsOptions{Store: figures, Source: v.Source, Routes: v.known(), Kinds: v.router.ExactKinds(), Log: v.log})
	v.registry.MustRegister(stats)
	v.stage.running(r, stats)
	v.log.Info("relaying", "source", v.Source, "table", v.Table)

	statsCtx, stopStats := context.WithCancel(ctx)
	v.work.Go(func() { v.warnShares(statsCtx, figures) })
	v.work.Go(func() { stats.Run(statsCtx) })
	err = r.Run(ctx, abandon)
	stopStats()
	v.work.Wait()
	if err != nil {
		return err
	}
	v.log.Info("drained")
	return nil
}

// await waits until the database can be used and has the schema. It returns an error that waiting doesn't mend.
func (v *service) await(ctx context.Context) error {
	said, saidAt := "", time.Time{}
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := v.prepare(ctx)
		if err == nil || !passes(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		reason := oneLine(err.Error())
		v.stage.waiting(reason)
		if reason != said || time.Since(saidAt) > time.Minute {
			v.log.Warn("waiting for the database", "reason", reason)
			said, saidAt = reason, time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// prepare tries once whether everything is in place, and migrates if that is wanted.
func (v *service) prepare(ctx context.Context) error {
	if err := usable(ctx, v.db); err != nil {
		return err
	}
	err := v.migrated(ctx)
	if v.Migrate && (errors.Is(err, migrations.ErrNotMigrated) || errors.Is(err, migrations.ErrNoOrderIndex)) {
		// Only then: an up of its own accord would build what somebody left out on purpose.
		if err = v.migrateUp(ctx); err == nil {
			err = v.migrated(ctx)
		}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	return v.nameSource(ctx, v.db)
}

func (v *service) migrated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	err := migrations.Check(ctx, v.db, v.Table)
	if err == nil && v.router.Ordered() {
		err = migrations.CheckOrder(ctx, v.db, v.Table)
	}
	return err
}

// listenAdmin binds the admin address.
func listenAdmin(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("RELAY_ADMIN_ADDR=%s can't be listened on: %w", addr, err)
	}
	return ln, nil
}
