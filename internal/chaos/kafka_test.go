package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	var addrs []string
	for _, b := range w.brokers {
		addrs = append(addrs, b.Addr)
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...))...)
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
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
	admin := kadm.NewClient(cl)
	topics, err := admin.ListTopics(ctx, places("kafka")...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, topic := range topics.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			replicas := slices.Sorted(slices.Values(p.Replicas))
			rnd.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			order.Assign(topic.Topic, p.Partition, replicas)
		}
	}
	if _, err := admin.AlterPartitionAssignments(ctx, order); err != nil {
		w.t.Fatal(err)
	}
	return order
}

// awaitLeaders waits until every broker knows the leaders. The controller has answered long before that, and a leader
// that hasn't heard of it yet still takes messages and then has no good word for them. It asks for the election again:
// a replica that has just come back isn't chosen until it has caught up.
func (w *world) awaitLeaders(order kadm.AlterPartitionAssignmentsReq) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cl := w.kafka()
	defer cl.Close()
	for {
		var late error
		for _, b := range w.brokers {
			late = cmp.Or(late, leadersMoved(ctx, b.Addr, order))
		}
		if late == nil {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatal(late)
		}
		if _, err := kadm.NewClient(cl).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// leadersMoved says what a broker doesn't know yet.
func leadersMoved(ctx context.Context, addr string, order kadm.AlterPartitionAssignmentsReq) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	request := kmsg.NewPtrMetadataRequest()
	for name := range order {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	known, err := request.RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil {
		return err
	}
	for _, topic := range known.Topics {
		for _, p := range topic.Partitions {
			want := order[*topic.Topic][p.Partition]
			if !slices.Equal(p.Replicas, want) || p.Leader != want[0] {
				return fmt.Errorf("broker %s: %s-%d is led by %d of %v, not by the first of %v", addr, *topic.Topic, p.Partition, p.Leader, p.Replicas, want)
			}
		}
	}
	return nil
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
