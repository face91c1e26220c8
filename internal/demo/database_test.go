package demo

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
)

// database makes one for the test: the demo's schema has a fixed name.
func database(t *testing.T) (rawURL string, connect func(context.Context) (*pgx.Conn, error)) {
	t.Helper()
	u, err := url.Parse(services.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	server, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	name := "demo_" + strings.ToLower(rand.Text()[:10])
	if _, err := server.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := server.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		_ = server.Close(ctx)
	})
	u.Path = "/" + name
	return u.String(), func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, u.String()) }
}

func query[T any](t *testing.T, connect func(context.Context) (*pgx.Conn, error), sql string) (v T) {
	t.Helper()
	conn, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

const schemaExists = "SELECT to_regnamespace('relay_demo') IS NOT NULL"

func TestGivenDatabase(t *testing.T) {
	t.Parallel()
	rawURL, connect := database(t)
	d, err := UseGiven(t.Context(), rawURL, connect)
	if err != nil {
		t.Fatal(err)
	}
	if !query[bool](t, connect, schemaExists) {
		t.Error("there is no schema")
	}
	if _, err := UseGiven(t.Context(), rawURL, connect); err == nil || !strings.Contains(err.Error(), "another demo") {
		t.Errorf("a second demo: %v", err)
	}
	// The connection that holds the lock dies; the schema goes all the same.
	query[bool](t, connect, "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if query[bool](t, connect, schemaExists) {
		t.Error("the schema is left")
	}
}

func TestLeftoverAndForeignSchema(t *testing.T) {
	t.Parallel()
	rawURL, connect := database(t)
	conn, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE SCHEMA relay_demo; CREATE TABLE relay_demo.mine (n int)")
	if _, err := UseGiven(t.Context(), rawURL, connect); err == nil || !strings.Contains(err.Error(), "isn't a demo's") {
		t.Errorf("a schema of somebody else: %v", err)
	}
	exec("SELECT count(*) FROM relay_demo.mine") // it is still there
	exec("COMMENT ON SCHEMA relay_demo IS 'made by relay demo, which drops it'")
	d, err := UseGiven(t.Context(), rawURL, connect)
	if err != nil {
		t.Fatalf("what a killed demo left: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestBrokersAreThoseInTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env  config.Environ
		want string
	}{
		{config.Environ{}, ""},
		{config.Environ{"RELAY_KAFKA_BROKERS": "b", "AWS_REGION": "eu-central-1"}, "kafka:relay-demo"},
		{config.Environ{"RELAY_RABBITMQ_URL_FILE": "f", "RELAY_SQS_ENDPOINT": "e", "RELAY_KAFKA_BROKERS": " "}, "rabbitmq:relay-demo/{kind} sqs:relay-demo"},
	} {
		var got []string
		for _, b := range Brokers(test.env) {
			got = append(got, b.To)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v: %v, want %s", test.env, got, test.want)
		}
	}
}

// Creating the places twice is no error: the next demo finds them.
func TestPlacesAreCreated(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	env := config.Environ{
		"RELAY_KAFKA_BROKERS": services.Kafka(t), "RELAY_RABBITMQ_URL": services.RabbitMQ(t),
		"RELAY_SQS_ENDPOINT": services.SQS(t), "RELAY_SQS_REGION": "us-east-1",
	}
	found := Brokers(env)
	if len(found) != 3 {
		t.Fatalf("%d brokers", len(found))
	}
	for _, b := range append(found, found...) {
		if err := b.Create(t.Context(), env); err != nil {
			t.Error(err)
		}
	}
	env["RELAY_RABBITMQ_URL"] = "amqp://guest:s3cr3tvalue@127.0.0.1:1/"
	if err := Brokers(env)[1].Create(t.Context(), env); err == nil || strings.Contains(err.Error(), "s3cr3tvalue") {
		t.Errorf("a broker that is away: %v", err)
	}
}
