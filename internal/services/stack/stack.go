package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobrelay/relay/internal/services/container"
	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/native"
	"github.com/jobrelay/relay/internal/services/postgres"
)

// Variable is one setting of the tests.
type Variable struct{ Name, Value string }

// Stack is a running set of services.
type Stack struct {
	cache string

	mu    sync.Mutex
	env   []Variable
	stops []func() error
}

// postgresSettings suit many test packages on one server: room for their connections, and a deadlock found soon.
var postgresSettings = map[string]string{
	"max_connections": "400", "shared_buffers": "256MB", "max_wal_size": "2GB", "deadlock_timeout": "200ms",
	"log_min_messages": "warning", "log_checkpoints": "off",
}

// Names are the services that a stack may consist of.
var Names = []string{"postgres", "postgres-old", "kafka", "rabbitmq", "sqs"}

// Options say what to start; the zero value works.
type Options struct {
	Only     []string // some of Names; default all
	Optimize bool     // see native.Env; default false
}

// Start starts services at once. If one doesn't come up, it stops the others and says why.
func Start(ctx context.Context, log *slog.Logger, o Options) (*Stack, error) {
	names := o.Only
	if len(names) == 0 {
		names = Names
	}
	env, err := native.NewEnv(ctx, log)
	if err != nil {
		return nil, err
	}
	env.Optimize = o.Optimize
	if env.Docker {
		log.Info("brokers run as containers; " + container.Choice + "=native makes them ordinary processes")
		if err := container.Sweep(ctx); err != nil {
			return nil, err
		}
	}
	if err := native.Install(ctx, env, names); err != nil {
		return nil, err
	}
	s := &Stack{cache: env.Cache}
	begin := time.Now()
	if err := s.all(ctx, env, names); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	log.Info("services are up", "took", time.Since(begin).Round(time.Millisecond))
	return s, nil
}

// start starts one service and records what it exports and how it's stopped.
func (s *Stack) start(ctx context.Context, env *native.Env, name string) error {
	switch name {
	case "postgres":
		return s.postgres(ctx, env, postgres.Version, "RELAY_TEST_POSTGRES")
	case "postgres-old":
		return s.postgres(ctx, env, postgres.Oldest, "RELAY_TEST_POSTGRES_OLD")
	case "kafka":
		return s.kafka(ctx, env)
	case "rabbitmq":
		return s.rabbitMQ(ctx, env)
	case "sqs":
		return s.elasticMQ(ctx, env)
	}
	return fmt.Errorf("no service is called %q", name)
}

// all runs every start at once and reports every one that failed by itself; the first failure ends the others.
func (s *Stack) all(ctx context.Context, env *native.Env, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for _, name := range names {
		wg.Go(func() {
			begin := time.Now()
			err := s.start(ctx, env, name)
			if err == nil {
				env.Log.Info("started", "service", name, "took", time.Since(begin).Round(time.Millisecond))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil || len(failed) == 0 {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
			cancel(errors.New("another service did not come up"))
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Stop stops all services at once, and removes what killed tests have left of private ones.
func (s *Stack) Stop() error {
	s.mu.Lock()
	stops := s.stops
	s.stops = nil
	s.mu.Unlock()
	errs := make([]error, len(stops))
	var wg sync.WaitGroup
	for i, stop := range stops {
		wg.Go(func() { errs[i] = stop() })
	}
	wg.Wait()
	return errors.Join(append(errs, host.Sweep(context.Background(), s.cache))...)
}

// Env returns the variables, in the order of their names.
func (s *Stack) Env() []Variable { return s.env }

// add records what a service exports and how it's stopped.
func (s *Stack) add(stop func() error, env ...Variable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
	s.env = append(s.env, env...)
	slices.SortFunc(s.env, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
}

func (s *Stack) postgres(ctx context.Context, env *native.Env, version, name string) error {
	server, err := postgres.Start(ctx, postgres.Options{Cache: env.Cache, Version: version, Settings: postgresSettings, Logger: env.Log})
	if err != nil {
		return err
	}
	s.add(server.Stop, Variable{name, server.URL})
	return nil
}

func (s *Stack) kafka(ctx context.Context, env *native.Env) error {
	k, err := native.NewKafka(ctx, env)
	if err != nil {
		return err
	}
	s.add(k.Stop,
		Variable{"RELAY_TEST_KAFKA", k.Addr}, Variable{"RELAY_TEST_KAFKA_SASL", k.SASL},
		Variable{"RELAY_TEST_KAFKA_USER", native.KafkaUser}, Variable{"RELAY_TEST_KAFKA_PASSWORD", k.Password},
		Variable{"RELAY_TEST_KAFKA_TLS", k.TLS}, Variable{"RELAY_TEST_KAFKA_MTLS", k.MTLS}, Variable{"RELAY_TEST_KAFKA_CA", k.CA},
		Variable{"RELAY_TEST_KAFKA_CERT", k.Cert}, Variable{"RELAY_TEST_KAFKA_KEY", k.Key},
		Variable{"RELAY_TEST_KAFKA_PROXIED", strings.Join(k.Proxied, ",")}, Variable{"RELAY_TEST_KAFKA_ADVERTISED", strings.Join(k.Advertised, ",")})
	return nil
}

func (s *Stack) elasticMQ(ctx context.Context, env *native.Env) error {
	q, err := native.NewElasticMQ(ctx, env)
	if err != nil {
		return err
	}
	s.add(q.Stop, Variable{"RELAY_TEST_SQS", q.URL})
	return nil
}

func (s *Stack) rabbitMQ(ctx context.Context, env *native.Env) error {
	r, err := native.NewRabbitMQ(ctx, env)
	if err != nil {
		return err
	}
	s.add(r.Stop,
		Variable{"RELAY_TEST_RABBITMQ", r.URL}, Variable{"RELAY_TEST_RABBITMQ_TLS", r.TLS}, Variable{"RELAY_TEST_RABBITMQ_CA", r.CA},
		Variable{"RELAY_TEST_RABBITMQ_MGMT", r.Mgmt}, Variable{"RELAY_TEST_RABBITMQ_CTL", r.Ctl})
	return nil
}
