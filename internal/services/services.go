// Package services finds the real Postgres, Kafka, RabbitMQ and SQS servers that tests run against.
package services

import (
	"os"
	"testing"
)

// Postgres returns the URL of a Postgres server whose user may create databases and schemas.
func Postgres(t testing.TB) string { return need(t, "RELAY_TEST_POSTGRES") }

// Kafka returns the bootstrap address (host:port) of a plaintext Kafka listener.
func Kafka(t testing.TB) string { return need(t, "RELAY_TEST_KAFKA") }

// RabbitMQ returns the AMQP URL of a RabbitMQ node.
func RabbitMQ(t testing.TB) string { return need(t, "RELAY_TEST_RABBITMQ") }

// SQS returns the endpoint of an SQS server.
func SQS(t testing.TB) string { return need(t, "RELAY_TEST_SQS") }

// need reads one address; a missing service fails the test, only -short leaves it out.
func need(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real service; -short leaves it out")
	}
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, or start the services with `make services`", name)
	}
	return v
}
