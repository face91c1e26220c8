package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobrelay/relay/config"
)

// Place is what the demo's topic, exchange and queue are called.
const Place = "relay-demo"

const createTimeout = 15 * time.Second

// Broker is a place that the demo delivers to beside standard output.
type Broker struct {
	Sink   string   // type and name of the sink
	To     string   // destination, as a route writes it
	signs  []string // variables that say that there is such a broker
	create func(context.Context, config.Environ) error
}

func brokers() []Broker {
	return []Broker{
		{"kafka", "kafka:" + Place, []string{"RELAY_KAFKA_BROKERS"}, createTopic},
		{"rabbitmq", "rabbitmq:" + Place + "/{kind}", []string{"RELAY_RABBITMQ_URL", "RELAY_RABBITMQ_URL_FILE"}, declareQueue},
		{"sqs", "sqs:" + Place, []string{"RELAY_SQS_ENDPOINT", "RELAY_SQS_REGION"}, createQueue},
	}
}

// Brokers returns those whose settings are in the environment.
func Brokers(env config.Environ) []Broker {
	var found []Broker
	for _, b := range brokers() {
		for _, name := range b.signs {
			if strings.TrimSpace(env[name]) != "" {
				found = append(found, b)
				break
			}
		}
	}
	return found
}

// Create makes the place unless it exists. The relay itself never does that: topology belongs to those who run the
// broker.
func (b Broker) Create(ctx context.Context, env config.Environ) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := b.create(ctx, env); err != nil {
		return fmt.Errorf("creating %s: %w", b.To, err)
	}
	return nil
}

// decode reads some of a sink's settings. They have been checked by the sink already.
func decode(env config.Environ, sink string, into any) error {
	if problems := config.Decode(env, config.SinkPrefix(sink), into); len(problems) > 0 {
		return problems
	}
	return nil
}
