package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MoveLeaders gives every partition of the topics its replicas in another order, so that the first of them is to have the lead.
func MoveLeaders(ctx context.Context, cl *kgo.Client, rnd *rand.Rand, topics ...string) (order kadm.AlterPartitionAssignmentsReq, err error) {
	admin := kadm.NewClient(cl)
	described, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("move leaders: %w", err)
	}
	for _, topic := range described.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			replicas := slices.Sorted(slices.Values(p.Replicas))
			rnd.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			order.Assign(topic.Topic, p.Partition, replicas)
		}
	}
	if _, err := admin.AlterPartitionAssignments(ctx, order); err != nil {
		return nil, fmt.Errorf("move leaders: %w", err)
	}
	return order, nil
}

// AwaitLeaders waits until each of the brokers knows the leaders of an order. The controller has answered long before that, and
// a leader that hasn't heard of it yet still takes messages and then has no good word for them. It asks for the election
// again: a replica that has just come back isn't chosen until it has caught up.
func AwaitLeaders(ctx context.Context, cl *kgo.Client, brokers []string, order kadm.AlterPartitionAssignmentsReq) error {
	for {
		var late error
		for _, b := range brokers {
			late = cmp.Or(late, leadersMoved(ctx, b, order))
		}
		if late == nil || ctx.Err() != nil {
			return late
		}
		if _, err := kadm.NewClient(cl).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
			return fmt.Errorf("elect leaders: %w", err)
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

// Controller returns the id of the broker that is the cluster's active controller.
func Controller(ctx context.Context, cl *kgo.Client) (id int, err error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{
		Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}},
	}}
	res, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(res.ErrorCode)
	}
	switch {
	case err != nil:
	case len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1:
		err = errors.New("the reply names no partition")
	default:
		p := res.Topics[0].Partitions[0]
		id, err = int(p.LeaderID), kerr.ErrorForCode(p.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the controller: %w", err)
	}
	return id, nil
}
