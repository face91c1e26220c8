package stage

import (
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

// MoveLeaders gives every partition of the topics its replicas in another order, and the first of them the lead.
func MoveLeaders(ctx context.Context, cl *kgo.Client, rnd *rand.Rand, topics ...string) error {
	admin := kadm.NewClient(cl)
	described, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("move leaders: %w", err)
	}
	var order kadm.AlterPartitionAssignmentsReq
	var all kadm.TopicsSet
	for _, topic := range described.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			replicas := slices.Sorted(slices.Values(p.Replicas))
			rnd.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			order.Assign(topic.Topic, p.Partition, replicas)
			all.Add(topic.Topic, p.Partition)
		}
	}
	if _, err := admin.AlterPartitionAssignments(ctx, order); err != nil {
		return fmt.Errorf("move leaders: %w", err)
	}
	if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all); err != nil {
		return fmt.Errorf("move leaders: %w", err)
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
