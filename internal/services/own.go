package services

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services/native"
	"github.com/jobrelay/relay/internal/services/postgres"
)

// Own is a server that belongs to one test, which may stop, kill and start it. It goes away with the test.
// A start takes 2 to 15 seconds of a core, so only tests that need one should have one.
type Own struct {
	Addr string // host:port
	URL  string // as the shared server's function gives it; empty for Kafka
	// Proxied are listeners of Kafka for proxies; their clients are sent to the address of the same index in Advertised.
	Proxied, Advertised []string
	Mgmt                string // RabbitMQ's management API, with user and password

	t      testing.TB
	server controls
	ctl    string // script
	data   string // an own Postgres: its data folder, once it was asked for
}

// controls are what every kind of server can do.
type controls interface {
	Up(context.Context) error
	Down() error
	Kill() error
	Stop() error
	Log() string
}

// Stop stops the server in an orderly way and keeps its data. (ElasticMQ has none: its queues are gone.)
func (o *Own) Stop() {
	o.t.Helper()
	if err := o.server.Down(); err != nil {
		o.t.Fatal(err)
	}
}

// Kill stops the server at once, as a crash would, and keeps its data.
func (o *Own) Kill() {
	o.t.Helper()
	if err := o.server.Kill(); err != nil {
		o.t.Fatal(err)
	}
}

// Start starts the server again on the same address and waits until it answers.
func (o *Own) Start() {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 5*time.Minute)
	defer cancel()
	if err := o.server.Up(ctx); err != nil {
		o.t.Fatal(err)
	}
}

// Ctl runs rabbitmqctl against an own RabbitMQ.
func (o *Own) Ctl(args ...string) string {
	o.t.Helper()
	return rabbitmqctl(o.t, o.ctl, args)
}

// OwnPostgres starts a Postgres for this test, with server settings like "wal_level=logical" where it needs them.
func OwnPostgres(t testing.TB, settings ...string) *Own {
	t.Helper()
	e := begin(t)
	named := make(map[string]string)
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		named[name] = value
	}
	s, err := postgres.Start(t.Context(), postgres.Options{Cache: e.Cache, Settings: named, Logger: e.Log})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, &Own{Addr: u.Host, URL: s.URL, server: s})
}

// OwnKafka starts a broker for this test.
func OwnKafka(t testing.TB) *Own {
	t.Helper()
	k, err := native.NewKafka(t.Context(), begin(t))
	if err != nil {
		t.Fatal(err)
	}
	return own(t, &Own{Addr: k.Addr, Proxied: k.Proxied, Advertised: k.Advertised, server: k})
}

// OwnKafkaCluster starts brokers of one cluster for this test. An odd number of them are its controllers as well.
func OwnKafkaCluster(t testing.TB, brokers int) (all []*Own) {
	t.Helper()
	ks, err := native.NewKafkaCluster(t.Context(), begin(t), brokers)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range ks {
		all = append(all, own(t, &Own{Addr: k.Addr, Proxied: k.Proxied, Advertised: k.Advertised, server: k}))
	}
	return all
}

// OwnRabbitMQ starts a node for this test.
func OwnRabbitMQ(t testing.TB) *Own {
	t.Helper()
	r, err := native.NewRabbitMQ(t.Context(), begin(t))
	if err != nil {
		t.Fatal(err)
	}
	return own(t, &Own{Addr: r.Addr, URL: r.URL, Mgmt: r.Mgmt, server: r, ctl: r.Ctl})
}

// OwnSQS starts an SQS server for this test.
func OwnSQS(t testing.TB) *Own {
	t.Helper()
	q, err := native.NewElasticMQ(t.Context(), begin(t))
	if err != nil {
		t.Fatal(err)
	}
	return own(t, &Own{Addr: q.Addr, URL: q.URL, server: q})
}

func begin(t testing.TB) *native.Env {
	t.Helper()
	skipShort(t)
	e, err := native.NewEnv(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// own ends the server with the test, and shows what it wrote when the test has failed.
func own(t testing.TB, o *Own) *Own {
	o.t = t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the server at %s:\n%s", o.Addr, o.server.Log())
		}
		if err := o.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return o
}
