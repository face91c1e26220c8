package rabbitmq

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closeTimeout bounds the polite end of a connection.
const closeTimeout = time.Second

// generation is one connection with one channel in confirm mode. One goroutine owns it at a time. After any doubt it
// is thrown away.
type generation struct {
	dialer *dialer
	node   string
	conn   *conn
	link   *amqp.Connection
	alarm  atomic.Pointer[string] // why the broker has stopped reading, nil: it reads
	alarms chan struct{}          // a value: look at alarm
	done   chan struct{}          // the link has ended and nothing watches it any more

	channel *amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error // tells why the channel was closed
	why     error            // what it told
}

func newGeneration(d *dialer, node string, c *conn, link *amqp.Connection) *generation {
	g := &generation{dialer: d, node: node, conn: c, link: link, alarms: make(chan struct{}, 1), done: make(chan struct{})}
	go g.watch(link.NotifyBlocked(make(chan amqp.Blocking, 8)))
	return g
}

// watch follows the broker's alarms until the connection ends.
func (g *generation) watch(alarms <-chan amqp.Blocking) {
	defer close(g.done)
	for alarm := range alarms {
		if alarm.Active {
			g.alarm.Store(&alarm.Reason)
			select {
			case g.alarms <- struct{}{}:
			default:
			}
			g.dialer.log.Warn("the broker has stopped taking messages", "sink", g.dialer.name, "node", g.node, "error", alarm.Reason)
			continue
		}
		g.alarm.Store(nil)
		g.dialer.log.Info("the broker takes messages again", "sink", g.dialer.name, "node", g.node)
	}
}

// blocked is an error while an alarm keeps the broker from reading.
func (g *generation) blocked() error {
	if why := g.alarm.Load(); why != nil {
		return fmt.Errorf("%s has blocked publishing: %s", g.node, *why)
	}
	return nil
}

// start opens the channel and proves the connection before messages depend on it. A generation that an alarm has
// blocked is kept: it tells when the alarm ends.
func (g *generation) start() error {
	if err := g.reopen(); err != nil {
		return err
	}
	if _, err := g.probe(); err != nil && g.blocked() == nil {
		return err
	}
	return nil
}

// reopen opens a fresh channel on the same connection, after the broker closed the last one.
func (g *generation) reopen() error {
	channel, err := g.link.Channel()
	if err != nil {
		return err
	}
	// Returns are collected whenever confirms are waited for, so a buffer of the window and the probes can't fill up.
	// A full one would hold up the whole connection for seconds and then lose returns.
	g.channel, g.why = channel, nil
	g.returns = channel.NotifyReturn(make(chan amqp.Return, g.dialer.window+8))
	g.closed = channel.NotifyClose(make(chan *amqp.Error, 1))
	return channel.Confirm(false)
}

// revive opens a fresh channel if the connection still stands.
func (g *generation) revive(ctx context.Context) bool {
	if !g.stands() || g.blocked() != nil { // a broker that doesn't read opens no channel
		return false
	}
	stop := context.AfterFunc(ctx, func() { g.abort(context.Cause(ctx)) })
	err := g.reopen()
	return stop() && err == nil
}

// stands says whether the connection can be used, as far as is known. The library notices a failed write late.
func (g *generation) stands() bool { return !g.link.IsClosed() && g.conn.failure() == nil }

// alive says whether connection and channel can be used, as far as is known.
func (g *generation) alive() bool { return g.stands() && !g.channel.IsClosed() }

// reason is why the channel was closed; while it's being closed, reason waits for the library to tell.
func (g *generation) reason() error {
	if g.why == nil && g.channel.IsClosed() {
		g.why = amqp.ErrClosed
		if err := <-g.closed; err != nil {
			g.why = err
		}
	}
	return g.why
}

// ending says why the connection ended: in the broker's words if there are any, else what happened to the bytes.
func (g *generation) ending() string {
	err := g.reason()
	if err == nil { // the connection is going, and the channel not gone yet
		err = amqp.ErrClosed
	}
	if own := g.conn.failure(); own != nil && code(err) == 0 {
		err = own
	}
	return fmt.Sprintf("connection to %s: %s", g.node, words(err))
}

// abort ends the connection at once.
func (g *generation) abort(cause error) {
	g.conn.abort(cause)
	<-g.done
}

// close ends the connection politely where the broker takes part.
func (g *generation) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if g.blocked() == nil {
		stop := context.AfterFunc(ctx, func() { g.conn.abort(errSinkClosed) })
		defer stop()
		_ = g.link.Close() // the connection is gone either way
	}
	g.abort(errSinkClosed)
}
