package demo

import (
	"context"
	"errors"
	"strings"

	"github.com/jobrelay/relay/config"
	amqp "github.com/rabbitmq/amqp091-go"
)

type rabbitSettings struct {
	URL config.Secret `env:"URL" secret:"true"`
	CA  string        `env:"TLS_CA"`
}

// declareQueue makes an exchange and a queue that gets everything from it.
func declareQueue(ctx context.Context, env config.Environ) error {
	var s rabbitSettings
	if err := decode(env, "rabbitmq", &s); err != nil {
		return err
	}
	c := amqp.Config{Dial: amqp.DefaultDial(createTimeout), Properties: amqp.Table{"connection_name": "relay demo"}}
	if s.CA != "" {
		var err error
		if c.TLSClientConfig, err = tlsConfig(s.CA, "", ""); err != nil {
			return err
		}
	}
	conn, err := dialAny(strings.Split(string(s.URL), ","), c)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.ExchangeDeclare(Place, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(Place, true, false, false, false, nil); err != nil {
		return err
	}
	return channel.QueueBind(Place, "#", Place, false, nil)
}

// dialAny connects to the first node that answers. The client's own error may hold a piece of the URL.
func dialAny(urls []string, c amqp.Config) (*amqp.Connection, error) {
	err := errors.New("no broker answers")
	for _, url := range urls {
		conn, dialed := amqp.DialConfig(strings.TrimSpace(url), c)
		if dialed == nil {
			return conn, nil
		}
		var refused *amqp.Error
		if errors.As(dialed, &refused) {
			err = refused
		}
	}
	return nil, err
}
