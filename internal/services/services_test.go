package services_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/services/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPostgresVersions(t *testing.T) {
	t.Parallel()
	for _, server := range []struct{ url, version string }{
		{services.Postgres(t), postgres.Version},
		{services.PostgresOld(t), postgres.Oldest},
	} {
		conn, err := pgx.Connect(t.Context(), server.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var version string
		if err := conn.QueryRow(t.Context(), "SHOW server_version").Scan(&version); err != nil {
			t.Fatal(err)
		}
		if version != server.version {
			t.Errorf("server version: got %q, want %q", version, server.version)
		}
	}
}

func TestKafkaSASL(t *testing.T) {
	t.Parallel()
	listener := services.KafkaWithSASL(t)
	mechanism := func(algorithm scram.Algorithm, password string) sasl.Mechanism {
		m, err := scram.Mechanism(algorithm, listener.User, password)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		name      string
		mechanism sasl.Mechanism
		accepted  bool
	}{
		{"plain", plain.Mechanism{Username: listener.User, Password: listener.Password}, true},
		{"plain, wrong password", plain.Mechanism{Username: listener.User, Password: "wrong"}, false},
		{"scram 256", mechanism(scram.SHA256, listener.Password), true},
		{"scram 512", mechanism(scram.SHA512, listener.Password), true},
		{"scram 512, wrong password", mechanism(scram.SHA512, "wrong"), false},
		{"no login", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkKafka(t, &kafka.Dialer{SASLMechanism: c.mechanism}, listener.Addr, c.accepted)
		})
	}
}

func TestKafkaTLS(t *testing.T) {
	t.Parallel()
	listener := services.KafkaWithTLS(t)
	authority := pool(t, listener.CA)
	cert, err := tls.LoadX509KeyPair(listener.Cert, listener.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		addr     string
		config   *tls.Config
		accepted bool
	}{
		{"without a certificate", listener.Addr, &tls.Config{RootCAs: authority}, true},
		{"with a certificate", listener.Addr, &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{cert}}, true},
		{"unknown authority", listener.Addr, &tls.Config{}, false},
		{"mutual, with a certificate", listener.MTLS, &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{cert}}, true},
		{"mutual, without a certificate", listener.MTLS, &tls.Config{RootCAs: authority}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkKafka(t, &kafka.Dialer{TLS: c.config}, c.addr, c.accepted)
		})
	}
}

// checkKafka asks for the cluster's brokers: a wrong login or certificate may show only at the first request.
func checkKafka(t *testing.T, dialer *kafka.Dialer, addr string, accepted bool) {
	t.Helper()
	dialer.Timeout = 10 * time.Second
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Brokers()
	}
	if (err == nil) != accepted {
		t.Errorf("accepted: got error %v, want accepted %t", err, accepted)
	}
}

func TestKafkaProxiedListenersSendClientsToTheProxy(t *testing.T) {
	t.Parallel()
	var seen []string
	for range 2 {
		listener, advertised := services.KafkaProxied(t)
		seen = append(seen, listener)
		conn, err := kafka.DialContext(t.Context(), "tcp", listener)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		brokers, err := conn.Brokers()
		if err != nil {
			t.Fatal(err)
		}
		if len(brokers) != 1 || net.JoinHostPort(brokers[0].Host, strconv.Itoa(brokers[0].Port)) != advertised {
			t.Errorf("brokers behind %s: got %v, want %s", listener, brokers, advertised)
		}
		l, err := net.Listen("tcp", advertised)
		if err != nil {
			t.Errorf("listen where clients are sent: %v", err)
			continue
		}
		l.Close()
	}
	if seen[0] == seen[1] {
		t.Errorf("two tests at once got the same listener %s", seen[0])
	}
}

func TestRabbitMQTLSAndCtl(t *testing.T) {
	t.Parallel()
	url, ca := services.RabbitMQWithTLS(t)
	conn, err := amqp.DialTLS(url, &tls.Config{RootCAs: pool(t, ca)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := amqp.DialTLS(url, &tls.Config{}); err == nil {
		t.Error("a certificate of an unknown authority was accepted")
	}
	if out := services.RabbitMQCtl(t, "list_connections", "ssl"); !strings.Contains(out, "true") {
		t.Errorf("list_connections: got %q, want our encrypted connection", out)
	}
	if services.RabbitMQManagement(t) == "" || services.RabbitMQ(t) == "" || services.SQS(t) == "" {
		t.Error("an address is missing")
	}
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("%s holds no certificate", file)
	}
	return pool
}
