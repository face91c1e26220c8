package rabbitmq

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// address is where a message goes: an exchange ("" is the default one, where the key is a queue's name) and a
// routing key.
type address struct{ exchange, key string }

var unslash = strings.NewReplacer("%2F", "/", "%2f", "/")

// parseAddress reads "exchange/routing key", split at the first slash; %2F is a slash that doesn't split. "/queue" is
// the default exchange.
func parseAddress(s string) (address, error) {
	exchange, key, ok := strings.Cut(s, "/")
	switch {
	case !ok:
		return address{}, errors.New("must be exchange/routing key, or /queue")
	case exchange == "" && key == "":
		return address{}, errors.New("must name a queue after the slash, or an exchange before it")
	}
	return address{unslash.Replace(exchange), unslash.Replace(key)}, nil
}

// check refuses what AMQP can't carry.
func (a address) check() error {
	for _, name := range []struct{ what, text string }{{"exchange", a.exchange}, {a.keyName(), a.key}} {
		if err := checkShort(name.what, name.text); err != nil {
			return err
		}
		if !utf8.ValidString(name.text) {
			return fmt.Errorf("the %s isn't UTF-8", name.what)
		}
	}
	return nil
}

func (a address) keyName() string {
	if a.exchange == "" {
		return "queue"
	}
	return "routing key"
}

// String names the address in errors.
func (a address) String() string {
	if a.exchange == "" {
		return fmt.Sprintf("queue %q", a.key)
	}
	return fmt.Sprintf("exchange %q, routing key %q", a.exchange, a.key)
}

// maxShort is the size of AMQP's short string: names, ids and content types.
const maxShort = 255

func checkShort(what, text string) error {
	if len(text) > maxShort {
		return fmt.Errorf("the %s has %d bytes, RabbitMQ takes at most %d", what, len(text), maxShort)
	}
	return nil
}
