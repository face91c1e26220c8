package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/relay"
	"github.com/jobrelay/relay/sinks"
	"github.com/prometheus/client_golang/prometheus"
)

// The wiring: settings → pool → store → sinks → relay.

const (
	applicationName  = "relay"
	connectTimeout   = 10 * time.Second
	pingTimeout      = 5 * time.Second
	pingAfterIdle    = 10 * time.Second // a connection used more recently than that is taken as it is
	connLifetime     = time.Hour
	adminConnections = 2
	closeTimeout     = 5 * time.Second
)

// pool opens a pool; it doesn't connect.
func pool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL can't be read") // the client's own words may hold a part of it
	}
	tune(c.ConnConfig, url)
	c.MaxConns = int32(connections)
	c.MinConns, c.MinIdleConns = 0, 0
	c.MaxConnLifetime, c.MaxConnLifetimeJitter = connLifetime, connLifetime/10
	c.PingTimeout = pingTimeout
	c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfterIdle }
	return pgxpool.NewWithConfig(ctx, c)
}

// tune fills in what the URL leaves open.
func tune(c *pgx.ConnConfig, url string) {
	if !strings.Contains(url, "default_query_exec_mode") {
		// Named prepared statements don't survive a transaction-mode pooler; cached descriptions do.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = applicationName
	}
}

// connect opens one connection of its own.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL can't be read")
	}
	tune(c, url)
	return pgx.ConnectConfig(ctx, c)
}

// store makes the store of the configured table.
func (s *settings) store(db *pgxpool.Pool) (*claim.Store, error) {
	return claim.New(db, claim.Options{
		Table:      s.Table,
		Lease:      s.Lease,
		BatchSize:  s.BatchSize,
		BatchBytes: s.BatchBytes,
		DeleteDone: s.Retention == 0,
		Log:        s.log,
	})
}

// openSinks makes every sink that the routes lead to. They don't connect yet.
func (s *settings) openSinks() (map[string]sinks.Sink, error) {
	open := map[string]sinks.Sink{}
	for name, own := range s.sinks {
		sink, err := own.Open(name, s.log)
		if err != nil {
			closeSinks(open, s.log)
			return nil, fmt.Errorf("opening the sink %s: %w", name, err)
		}
		open[name] = sink
	}
	return open, nil
}

// closeSinks closes all of them at once, within a bound.
func closeSinks(open map[string]sinks.Sink, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	ended := make(chan struct{}, len(open))
	for name, sink := range open {
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := sink.Close(ctx); err != nil {
				log.Warn("closing a sink failed", "sink", name, "error", err)
			}
		}()
	}
	for range open {
		<-ended
	}
}

// listener is nil when polling is all there should be.
func (s *settings) listener() *claim.Listener {
	if s.ListenURL == "" {
		return nil
	}
	return &claim.Listener{URL: string(s.ListenURL), Table: s.Table, Log: s.log}
}

// relay puts the parts together.
func (s *settings) relay(store *claim.Store, open map[string]sinks.Sink, source string, reg prometheus.Registerer) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Store:          store,
		Listener:       s.listener(),
		Routes:         s.routes,
		Sinks:          open,
		Addresses:      s.addresses(),
		Source:         source,
		Workers:        s.Workers,
		PublishTimeout: s.PublishTimeout,
		PollMin:        s.PollMin,
		PollMax:        s.PollMax,
		RetryBase:      s.RetryBase,
		RetryMax:       s.RetryMax,
		Retention:      s.Retention,
		RetentionDead:  s.RetentionDead,
		DrainTimeout:   s.DrainTimeout,
		Registerer:     reg,
		Log:            s.log,
	})
}

// nameSource completes the first half of the message id: what RELAY_SOURCE says, else the database's name as the
// server knows it (a pooler may know it by another).
func (s *settings) nameSource(ctx context.Context, db *pgxpool.Pool) error {
	if s.Source != "" {
		return nil
	}
	if err := db.QueryRow(ctx, "SELECT current_database()").Scan(&s.Source); err != nil {
		return fmt.Errorf("asking for the database's name: %w", err)
	}
	return nil
}
