package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// harness describes a sink on a broker.
func harness(broker string, env map[string]string) sinktest.Harness {
	return sinktest.Harness{
		Open:    func(t *testing.T) sinks.Sink { return openUnclosed(t, broker, env) },
		Address: func(t *testing.T) string { return newTopic(t, broker, 3) },
		Read: func(t *testing.T, address string, n int) []sinktest.Received {
			var out []sinktest.Received
			for _, r := range readAll(t, broker, address, n) {
				out = append(out, received(r))
			}
			return out
		},
		Missing:     func(t *testing.T) string { return topicName(t) },
		Away:        func(t *testing.T) sinks.Sink { return openUnclosed(t, "127.0.0.1:1", env) },
		TextHeaders: true,
		Refused: map[string]func(m *sinks.Message){
			"topic with a slash": func(m *sinks.Message) { m.Address = "a/b" },
			"topic too long":     func(m *sinks.Message) { m.Address = string(make([]byte, 250)) },
			"empty topic":        func(m *sinks.Message) { m.Address = "" },
		},
	}
}

// TestSuite runs the common suite against a real broker.
func TestSuite(t *testing.T) {
	broker := services.Kafka(t)
	h := harness(broker, map[string]string{"COMPRESSION": "none"}) // else the large one becomes small
	h.TooLarge = 2 << 20
	h.Outage = func(t *testing.T) (sinks.Sink, string, sinktest.Line) {
		listener, advertised := services.KafkaProxied(t)
		proxy := sinktest.NewProxyAt(t, advertised, listener)
		return openUnclosed(t, advertised, nil), newTopic(t, broker, 3), proxy
	}
	sinktest.Run(t, h)
}

// TestSuiteFake runs it against a fake cluster of three brokers, compressed, so that it also runs without a service.
func TestSuiteFake(t *testing.T) {
	cluster := fake(t, 3)
	sinktest.Run(t, harness(cluster.ListenAddrs()[0], nil))
}

// fake starts a cluster of fake brokers.
func fake(t testing.TB, brokers int, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}
