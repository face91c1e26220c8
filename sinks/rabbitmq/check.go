package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// nowhere is a routing key that no queue has.
var nowhere = "relay-probe-" + rand.Text()

// Check asks on a connection of its own, so that it never disturbs a batch.
func (s *sink) Check(ctx context.Context, text string) error {
	ctx, cancel := s.bind(ctx)
	defer cancel()
	if err := s.check(ctx, text); err != nil {
		return fmt.Errorf("check %q: %w", text, err)
	}
	return nil
}

func (s *sink) check(ctx context.Context, text string) error {
	ask, err := question(text)
	if err != nil {
		return err
	}
	g, err := s.checkers.acquire(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { g.abort(context.Cause(ctx)) })
	defer func() { s.checkers.release(g, stop()) }()
	err = g.check(ask)
	switch {
	case err == nil || g.blocked() != nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s doesn't answer: %w", g.node, context.Cause(ctx))
	case !g.stands():
		return errors.New(g.ending())
	default:
		return err
	}
}

// asked is what a check is about: the broker alone (neither), an exchange, or an address.
type asked struct {
	exchange string
	address  *address
}

func question(text string) (asked, error) {
	if text == "" {
		return asked{}, nil
	}
	if !strings.Contains(text, "/") {
		exchange := unslash.Replace(text)
		return asked{exchange: exchange}, address{exchange: exchange}.check()
	}
	a, err := parseAddress(text)
	if err != nil {
		return asked{}, err
	}
	return asked{address: &a}, a.check()
}

// check asks whether the broker takes messages, and, if there is one, about a place.
func (g *generation) check(ask asked) error {
	refused, err := g.probe()
	switch {
	case err != nil:
		return err
	case ask.exchange != "":
		if err := g.has(ask.exchange); err != nil {
			return fmt.Errorf("exchange %q: %s", ask.exchange, words(err))
		}
	case ask.address != nil:
		if ask.address.exchange == "" && refused != nil {
			return fmt.Errorf("%v: %s", ask.address, words(refused))
		}
		if err := g.takes(*ask.address); err != nil {
			return fmt.Errorf("%v: %s", ask.address, words(err))
		}
	}
	return nil
}

// has asks whether there is an exchange, on a channel that is thrown away. That needs no right to write to it, which may
// depend on the routing key.
func (g *generation) has(exchange string) error {
	channel, err := g.link.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	return channel.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, false, false, false, false, nil)
}

// probe publishes to the default exchange, under a name that no queue has, and waits for the return and the confirm.
// It does so twice: under an alarm the broker still answers the first message of a connection. A broker that refuses
// the probe, because the user may not write to the default exchange, has answered too: that is refused.
func (g *generation) probe() (refused, err error) {
	for range 2 {
		if err := g.blocked(); err != nil {
			return nil, err
		}
		for len(g.returns) > 0 { // of a probe that an alarm kept waiting
			<-g.returns
		}
		confirm, err := g.channel.PublishWithDeferredConfirm("", nowhere, true, false, amqp.Publishing{MessageId: nowhere})
		if err == nil {
			err = g.await(confirm)
		}
		switch {
		case err != nil && g.blocked() == nil && code(err) == amqp.AccessRefused && g.stands():
			return err, g.reopen()
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}

// await waits for the answer to a probe, or for an alarm that withholds it.
func (g *generation) await(confirm *amqp.DeferredConfirmation) error {
	for {
		select {
		case <-g.alarms:
			if err := g.blocked(); err != nil {
				return err
			}
			continue
		case <-confirm.Done():
		}
		if !confirm.Acked() && g.channel.IsClosed() {
			return g.reason()
		}
		select {
		case <-g.returns:
			return nil
		default:
			return fmt.Errorf("%s confirmed a probe that nothing can route, and didn't return it", g.node)
		}
	}
}

// noHistory keeps an exchange of type x-recent-history, which stores messages while it routes them, from storing one.
var noHistory = amqp.Table{"x-recent-history-no-store": true}

// takes asks whether the broker takes messages for an address, on a channel that is thrown away. A queue of the default
// exchange must exist. To an exchange an empty message is published in a transaction that is rolled back: the
// broker checks the exchange and the right to write to it, by routing key too, and delivers nothing.
func (g *generation) takes(a address) error {
	channel, err := g.link.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	if a.exchange == "" {
		_, err = channel.QueueDeclarePassive(a.key, false, false, false, false, nil)
		if code(err) == amqp.ResourceLocked { // somebody's exclusive queue: it's there
			return nil
		}
		return err
	}
	if err = channel.Tx(); err != nil {
		return err
	}
	err = channel.Publish(a.exchange, a.key, false, false, amqp.Publishing{Headers: noHistory})
	if err == nil {
		err = channel.TxRollback()
	}
	if err != nil && channel.IsClosed() {
		if why := <-closed; why != nil {
			return why
		}
	}
	return err
}

// code is the broker's reply code in an error, or 0.
func code(err error) int {
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Server {
		return e.Code
	}
	return 0
}
