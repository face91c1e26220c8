package services_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/internal/services"
)

func TestOwnKafkaKeepsRecordsOverACrash(t *testing.T) {
	t.Parallel()
	broker := services.OwnKafka(t)
	conn, err := kafka.DialContext(t.Context(), "tcp", broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.CreateTopics(kafka.TopicConfig{Topic: "kept", NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	broker.Kill()
	refused(t, broker.Addr)
	broker.Start()
	conn, err = kafka.DialContext(t.Context(), "tcp", broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if partitions, err := conn.ReadPartitions("kept"); err != nil || len(partitions) != 1 {
		t.Errorf("topic after the crash: got %v, %v, want one partition", partitions, err)
	}
}

func TestOwnKafkaCluster(t *testing.T) {
	t.Parallel()
	brokers := services.OwnKafkaCluster(t, 3)
	brokers[0].Kill() // any of them may be away
	conn, err := kafka.DialContext(t.Context(), "tcp", brokers[1].Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.CreateTopics(kafka.TopicConfig{Topic: "twice", NumPartitions: 1, ReplicationFactor: 2}); err != nil {
		t.Errorf("a topic on the two that are left: %v", err)
	}
	brokers[0].Start()
	var got []kafka.Broker
	for end := time.Now().Add(time.Minute); len(got) != 3; time.Sleep(50 * time.Millisecond) { // the others hear of it a little later
		if got, err = conn.Brokers(); err != nil || time.Now().After(end) {
			t.Fatalf("brokers: got %v, %v, want three", got, err)
		}
	}
}

func TestOwnRabbitMQStopsAndStarts(t *testing.T) {
	t.Parallel()
	node := services.OwnRabbitMQ(t)
	declare(t, node.URL)
	node.Stop()
	refused(t, node.Addr)
	node.Start()
	declare(t, node.URL)
	node.Ctl("set_vm_memory_high_watermark", "0.000001")
	node.Kill()
	refused(t, node.Addr)
}

func declare(t *testing.T, url string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.QueueDeclare("kept", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func TestOwnSQSStopsAndStarts(t *testing.T) {
	t.Parallel()
	server := services.OwnSQS(t)
	server.Kill()
	refused(t, server.Addr)
	server.Start()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get(server.URL + "/health")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("health: got %s, want 200", reply.Status)
	}
}

func TestOwnPostgresTakesSettings(t *testing.T) {
	t.Parallel()
	server := services.OwnPostgres(t, "max_connections=17")
	server.Stop()
	refused(t, server.Addr)
	server.Start()
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var got string
	if err := conn.QueryRow(t.Context(), "SHOW max_connections").Scan(&got); err != nil || got != "17" {
		t.Errorf("max_connections: got %q, %v, want 17", got, err)
	}
}

func refused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		conn.Close()
		t.Fatalf("%s still takes connections after the server was stopped", addr)
	}
}
