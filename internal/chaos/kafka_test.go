package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
)

const partitions = 4

// kafkaBrokers are one, or several of a cluster: of three, two must have a message.
func kafkaBrokers(t *testing.T, n int) []*services.Own {
	if n > 1 {
		return services.OwnKafkaCluster(t, n)
	}
	return []*services.Own{services.OwnKafka(t)}
}

// kafka is a client over lines without faults.
func (w *world) kafka(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.kafkaAddrs()...))...)
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
}

func (w *world) kafkaAddrs() (all []string) {
	for _, b := range w.brokers {
		all = append(all, b.Addr)
	}
	return all
}

func (w *world) setUpKafka() {
	w.t.Helper()
	cl := w.kafka()
	defer cl.Close()
	replicas, settings := int16(len(w.brokers)), map[string]*string{}
	if two := "2"; replicas > 2 {
		settings["min.insync.replicas"] = &two
	}
	made, err := kadm.NewClient(cl).CreateTopics(w.t.Context(), partitions, replicas, settings, places("kafka")...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// broker is any of them.
func (w *world) broker(rnd *rand.Rand) *services.Own {
	if len(w.brokers) == 1 {
		return w.brokers[0]
	}
	return w.brokers[rnd.IntN(len(w.brokers))]
}

// moveLeaders gives every partition replicas in another order, so that the first of them is to have the lead.
func (w *world) moveLeaders(rnd *rand.Rand) (order kadm.AlterPartitionAssignmentsReq) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cl := w.kafka()
	defer cl.Close()
	order, err := stage.MoveLeaders(ctx, cl, rnd, places("kafka")...)
	if err != nil {
		w.t.Fatal(err)
	}
	return order
}

// awaitLeaders waits until every broker knows the leaders.
func (w *world) awaitLeaders(order kadm.AlterPartitionAssignmentsReq) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cl := w.kafka()
	defer cl.Close()
	if err := stage.AwaitLeaders(ctx, cl, w.kafkaAddrs(), order); err != nil {
		w.t.Fatal(err)
	}
}

// consumeKafka reads all topics to the ends that they have now.
func (w *world) consumeKafka() (all []history.Arrival) {
	w.t.Helper()
	topics := places("kafka")
	cl := w.kafka(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err != nil {
		w.t.Fatal(err)
	}
	left := 0
	ends.Each(func(o kadm.ListedOffset) { left += int(o.Offset) })
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("Kafka: %d records are missing", left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			all = append(all, arrival("kafka:"+r.Topic, stage.FromKafka(r)))
		})
	}
	return all
}
