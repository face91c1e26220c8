package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/internal/sqlname"
)

// Listener wakes on enqueue notifications. Run returns when ctx ends; it reconnects by itself, with backoff, and calls
// wake after each connect and at each notification, and up(true|false) as its state changes. It has a connection of
// its own and proves by itself that it still listens.
type Listener struct {
	URL   string        // a direct connection, no transaction pooler
	Table string        // default "jobs"; the channel is <table>_ready
	Check time.Duration // how often it checks itself; default 15s
	Log   *slog.Logger  // default: discard
}

const (
	checkEvery   = 15 * time.Second
	listenMost   = 10 * time.Second // for connecting, and for one check's answer
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 10 * time.Second
)

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context, wake func(), up func(bool)) {
	log := l.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	told := false
	for pause := reconnectMin; ; pause = min(2*pause, reconnectMax) {
		listening := time.Time{}
		err := l.listen(ctx, wake, func() { listening, told = time.Now(), false; up(true) })
		if !listening.IsZero() {
			up(false)
			if time.Since(listening) > reconnectMax {
				pause = reconnectMin
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !told {
			log.Warn("not listening for new jobs, polling goes on", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// listen holds one connection until it breaks or ctx ends.
func (l *Listener) listen(ctx context.Context, wake, up func()) error {
	channel, err := l.channel()
	if err != nil {
		return err
	}
	conn, err := l.connect(ctx, channel)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	up()
	wake() // what came before the LISTEN was told to nobody
	for {
		err := l.wait(ctx, conn)
		switch {
		case err == nil:
			wake()
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return err
		default:
			if err := check(ctx, conn, channel); err != nil {
				return err
			}
		}
	}
}

func (l *Listener) wait(ctx context.Context, conn *pgx.Conn) error {
	every := l.Check
	if every <= 0 {
		every = checkEvery
	}
	ctx, cancel := context.WithTimeout(ctx, every*3/4+rand.N(every/2))
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	return err
}

func (l *Listener) channel() (string, error) {
	table := l.Table
	if table == "" {
		table = "jobs"
	}
	at, err := sqlname.Parse(table)
	return at.Name + "_ready", err
}

// connect dials with short keepalives: a peer that vanished without a word is noticed by the kernel as well.
func (l *Listener) connect(ctx context.Context, channel string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.URL)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	config.DialFunc = dialer.DialContext
	ctx, cancel := context.WithTimeout(ctx, listenMost)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// check proves that the connection lives and that the session at its other end listens: behind a transaction pooler,
// or after somebody's DISCARD ALL, it doesn't any more.
func check(ctx context.Context, conn *pgx.Conn, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, listenMost)
	defer cancel()
	var listens bool
	err := conn.QueryRow(ctx, "SELECT $1 IN (SELECT pg_listening_channels())",
		pgx.QueryExecModeSimpleProtocol, channel).Scan(&listens)
	switch {
	case err != nil:
		return fmt.Errorf("check the listener: %w", err)
	case !listens:
		return errors.New("check the listener: the session listens no more (is a transaction pooler in between?)")
	}
	return nil
}
