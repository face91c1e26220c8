package rabbitmq

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/jobrelay/relay/sinks"
)

// Type returns the kind of sink "rabbitmq".
func Type() sinks.Type {
	return sinks.Type{Name: "rabbitmq", Settings: func() sinks.Settings { return &settings{} }}
}

type settings struct {
	URL         secret `env:"URL" secret:"true" required:"true" rule:"an AMQP URL such as amqp://user:password@host:5672/vhost (amqps for TLS), or several, separated by commas" help:"The broker. Several URLs, separated by commas, are the nodes of one cluster: a connection that fails is made to another node. Parameters of RabbitMQ's URL: heartbeat, connection_timeout, cacertfile, certfile, keyfile, server_name_indication, auth_mechanism."`
	TLSCA       string `env:"TLS_CA" rule:"a file's path" shown:"those of the system" help:"PEM file of the certificate authorities that vouch for the broker. Needs an amqps URL."`
	Connections int    `env:"CONNECTIONS" default:"2" range:"1..64" help:"Connections that publish. Each serves one batch at a time; one more is used for checks. Several share the load among the broker's processes, and what breaks one leaves the others alone."`
	Window      int    `env:"WINDOW" default:"1000" range:"1..10000" help:"Most messages in flight on a connection: sent, but not confirmed yet."`
}

// Validate checks the URLs and the files that they and TLS_CA name.
func (s *settings) Validate() []error {
	if _, err := s.endpoints(); err != nil {
		return []error{err}
	}
	return nil
}

// Parent names the exchange that an address lies in, as the address writes it; "" for the default exchange, which is
// always there.
func (s *settings) Parent(text string) string {
	exchange, _, _ := strings.Cut(text, "/")
	return exchange
}

// CheckAddress wants "exchange/routing key", or "/queue" for the default exchange.
func (s *settings) CheckAddress(text string) error {
	a, err := parseAddress(text)
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return fmt.Errorf("rabbitmq address %q: %w", text, err)
	}
	return nil
}

// Open makes the sink; it connects when it's used.
func (s *settings) Open(name string, log *slog.Logger) (sinks.Sink, error) {
	endpoints, err := s.endpoints()
	if err != nil {
		return nil, fmt.Errorf("open sink %s: %w", name, err)
	}
	d := newDialer(name, endpoints, s.Window, log)
	return newSink(d, s.Connections), nil
}

// secret is text that prints as *** whichever way it's printed.
type secret string

func (secret) String() string               { return "***" }
func (secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte("***")) }
func (secret) MarshalText() ([]byte, error) { return []byte("***"), nil }
