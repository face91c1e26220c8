// Package services finds the real Postgres, Kafka, RabbitMQ and SQS servers that tests run against.
//
// The shared ones (Postgres, Kafka, …) are started once for all packages by command services, which describes them
// by RELAY_TEST_* variables: `make test` does, and `make services` prints them for a shell. A test makes a database
// or schema, topic or queue of its own there. A test that must stop, kill or throttle a server starts its own:
// OwnPostgres, OwnKafka, OwnRabbitMQ, OwnSQS.
//
// With `go test -short` every function here skips the test; otherwise a missing service fails it.
package services

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
)

// Postgres returns the URL of a Postgres server whose user may create databases and schemas.
func Postgres(t testing.TB) string { return need(t, "RELAY_TEST_POSTGRES") }

// PostgresOld returns the same of the oldest major version that relay supports.
func PostgresOld(t testing.TB) string { return need(t, "RELAY_TEST_POSTGRES_OLD") }

// Kafka returns the bootstrap address (host:port) of a plaintext Kafka listener.
func Kafka(t testing.TB) string { return need(t, "RELAY_TEST_KAFKA") }

// KafkaSASL is a listener of the same broker that wants a login by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
type KafkaSASL struct{ Addr, User, Password string }

// KafkaWithSASL returns the SASL listener, without TLS.
func KafkaWithSASL(t testing.TB) KafkaSASL {
	return KafkaSASL{need(t, "RELAY_TEST_KAFKA_SASL"), need(t, "RELAY_TEST_KAFKA_USER"), need(t, "RELAY_TEST_KAFKA_PASSWORD")}
}

// KafkaTLS are the encrypted listeners of the same broker. CA, Cert and Key are files in PEM form.
type KafkaTLS struct {
	Addr      string // takes clients with and without a certificate; a wrong one is refused
	MTLS      string // takes only clients with a certificate
	CA        string // the authority of the broker's certificate
	Cert, Key string // a client's certificate that MTLS takes
}

// KafkaWithTLS returns the encrypted listeners.
func KafkaWithTLS(t testing.TB) KafkaTLS {
	return KafkaTLS{
		Addr: need(t, "RELAY_TEST_KAFKA_TLS"), MTLS: need(t, "RELAY_TEST_KAFKA_MTLS"), CA: need(t, "RELAY_TEST_KAFKA_CA"),
		Cert: need(t, "RELAY_TEST_KAFKA_CERT"), Key: need(t, "RELAY_TEST_KAFKA_KEY"),
	}
}

// KafkaProxied returns a plaintext listener of the same broker for a test that puts a proxy before it. The broker
// sends clients of that listener to advertised: the test must listen there, forward to listener, and give advertised
// to the client. There are a few such pairs for all tests that run; the test has one until it ends.
func KafkaProxied(t testing.TB) (listener, advertised string) {
	t.Helper()
	listeners := strings.Split(need(t, "RELAY_TEST_KAFKA_PROXIED"), ",")
	advertise := strings.Split(need(t, "RELAY_TEST_KAFKA_ADVERTISED"), ",")
	if len(listeners) != len(advertise) {
		t.Fatalf("RELAY_TEST_KAFKA_PROXIED has %d addresses, RELAY_TEST_KAFKA_ADVERTISED %d", len(listeners), len(advertise))
	}
	cache, err := host.CacheDir(host.Unprivileged())
	if err != nil {
		t.Fatal(err)
	}
	for {
		for i, addr := range advertise {
			lock, free, err := host.TryAcquire(filepath.Join(cache, "ports", strings.ReplaceAll(addr, ":", "-")+".pair"))
			if err != nil {
				t.Fatal(err)
			}
			if free {
				t.Cleanup(lock.Remove)
				return listeners[i], addr
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended while it waited for a proxied Kafka listener")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// RabbitMQ returns the AMQP URL of a RabbitMQ node.
func RabbitMQ(t testing.TB) string { return need(t, "RELAY_TEST_RABBITMQ") }

// RabbitMQWithTLS returns the amqps URL of the same node and the file (PEM) of its certificate's authority.
func RabbitMQWithTLS(t testing.TB) (url, ca string) {
	return need(t, "RELAY_TEST_RABBITMQ_TLS"), need(t, "RELAY_TEST_RABBITMQ_CA")
}

// RabbitMQManagement returns the URL of the same node's management API, with user and password.
func RabbitMQManagement(t testing.TB) string { return need(t, "RELAY_TEST_RABBITMQ_MGMT") }

// RabbitMQCtl runs rabbitmqctl against that node and returns its output. What concerns the whole node (an alarm, a
// stop) disturbs all other tests: use OwnRabbitMQ and its Ctl there.
func RabbitMQCtl(t testing.TB, args ...string) string {
	t.Helper()
	return rabbitmqctl(t, need(t, "RELAY_TEST_RABBITMQ_CTL"), args)
}

func rabbitmqctl(t testing.TB, script string, args []string) string {
	t.Helper()
	// Detached, because cleaning up runs after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, script, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// SQS returns the endpoint of an SQS server. It takes any credentials and the region us-east-1.
func SQS(t testing.TB) string { return need(t, "RELAY_TEST_SQS") }

// Long tells whether tests should take their full size (`make test-long`): millions of rows, outages of minutes.
func Long() bool { return os.Getenv("RELAY_TEST_LONG") != "" }

// need reads one address; a missing service fails the test, only -short leaves it out.
func need(t testing.TB, name string) string {
	t.Helper()
	skipShort(t)
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, or start the services with `make services`", name)
	}
	return v
}

func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real service; -short leaves it out")
	}
}
