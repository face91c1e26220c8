package kafka

import (
	"context"
	"fmt"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// writeOperation is the bit of Write among a topic's authorized operations.
const writeOperation = 1 << 4

// Check says whether a topic takes messages: a broker answers, the topic exists and may be written to, each partition
// has a leader that answers at the address it is advertised by, and as many replicas are in sync as acks=all asks for.
func (s *sink) Check(ctx context.Context, address string) error {
	ctx, leave, err := s.enter(ctx)
	defer leave()
	if err == nil {
		err = s.check(ctx, address)
	}
	switch {
	case err == nil:
		return nil
	case address == "":
		return fmt.Errorf("check kafka: %w", err)
	default:
		return fmt.Errorf("check topic %q: %w", address, err)
	}
}

func (s *sink) check(ctx context.Context, address string) error {
	if address == "" {
		_, err := s.cluster.metadata(ctx, nil)
		return err
	}
	if err := checkTopic(address); err != nil {
		return err
	}
	asked := time.Now()
	res, err := s.cluster.metadata(ctx, []string{address})
	if err != nil {
		return err
	}
	s.cluster.learn(res, []string{address}, asked)
	topic := find(res.Topics, address)
	if topic.ErrorCode != 0 {
		_, err := ruleOn(topic.ErrorCode, "")
		return err
	}
	// Brokers that don't know say 0 or a negative number.
	if ops := topic.TopicAuthorizedOperations; ops > 0 && ops&writeOperation == 0 {
		_, err := ruleOn(int16(kafkago.TopicAuthorizationFailed), "")
		return err
	}
	if err := s.checkLeaders(ctx, topic.Partitions); err != nil {
		return err
	}
	return s.checkReplicas(ctx, topic)
}

func find(topics []metadata.ResponseTopic, name string) metadata.ResponseTopic {
	for _, t := range topics {
		if t.Name == name {
			return t
		}
	}
	return metadata.ResponseTopic{Name: name, ErrorCode: int16(kafkago.UnknownTopicOrPartition)}
}

// checkLeaders asks each leader for a sign of life: where brokers advertise an address that only they can reach, the
// metadata is fine and nothing can be sent.
func (s *sink) checkLeaders(ctx context.Context, partitions []metadata.ResponsePartition) error {
	seen := map[int32]bool{}
	for _, p := range partitions {
		broker := s.cluster.leader(p.LeaderID)
		if broker == nil {
			return fmt.Errorf("partition %d has no leader", p.PartitionIndex)
		}
		if seen[p.LeaderID] {
			continue
		}
		seen[p.LeaderID] = true
		if _, err := s.cluster.call(ctx, broker.address, new(apiversions.Request)); err != nil {
			return fmt.Errorf("leader of partition %d: %w", p.PartitionIndex, err)
		}
	}
	return nil
}

// checkReplicas compares in-sync replicas with min.insync.replicas, where the user may see it.
func (s *sink) checkReplicas(ctx context.Context, topic metadata.ResponseTopic) error {
	if s.acks != -1 {
		return nil
	}
	values, err := s.cluster.config(ctx, topic.Name, "min.insync.replicas")
	if err != nil {
		return err
	}
	least, err := strconv.Atoi(values["min.insync.replicas"])
	if err != nil {
		return nil
	}
	for _, p := range topic.Partitions {
		// Newer brokers cap the setting at the number of replicas; older ones refuse. A check that fails although
		// publishing works would be the worse mistake.
		if need := min(least, len(p.ReplicaNodes)); len(p.IsrNodes) < need {
			return fmt.Errorf("partition %d has %d of %d replicas in sync, min.insync.replicas is %d", p.PartitionIndex, len(p.IsrNodes), len(p.ReplicaNodes), least)
		}
	}
	if least == 1 && len(topic.Partitions) > 0 && len(topic.Partitions[0].ReplicaNodes) > 1 {
		s.warnOnce(topic.Name)
	}
	return nil
}

// warnOnce tells, once for each topic, that acks=all promises less than it seems.
func (s *sink) warnOnce(topic string) {
	if _, told := s.warned.LoadOrStore(topic, true); !told {
		s.log.Warn("min.insync.replicas is 1: a message counts as accepted when one replica has it, and is lost with it", "topic", topic)
	}
}
