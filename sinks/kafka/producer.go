package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
)

// producerPause is between two questions for a producer id while the broker fetches some from its controller.
const producerPause = 50 * time.Millisecond

// id returns the first stamp with the producer id of a slot, which all partitions share, or with a new one when that is
// spent.
func (s *sequencer) id(ctx context.Context, slot int, spent int64) (stamp, error) {
	start := time.Now()
	select {
	case s.asking <- struct{}{}:
	case <-ctx.Done():
		return unstamped, ended(ctx)
	}
	defer func() { <-s.asking }()
	if known, err := s.known(slot, spent, start); err != nil || known.producer >= 0 {
		return known, err
	}
	got, err := s.cluster.newProducer(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			s.failure, s.failed = err, time.Now()
		}
		return unstamped, err
	}
	for len(s.ids) <= slot {
		s.ids = append(s.ids, unstamped)
	}
	s.ids[slot], s.failure = got, nil
	return got, nil
}

// known returns what somebody else has found out since a moment.
func (s *sequencer) known(slot int, spent int64, since time.Time) (stamp, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot < len(s.ids) && s.ids[slot].producer != spent {
		return s.ids[slot], nil
	}
	if s.failure != nil && s.failed.After(since) {
		return unstamped, s.failure
	}
	return unstamped, nil
}

// newProducer asks for a producer id that nobody has had. A broker hands out a block of a thousand; when that is used
// up, and at first, it answers that it's loading until it has another, which is a matter of milliseconds.
func (c *cluster) newProducer(ctx context.Context) (stamp, error) {
	patient, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		got, err := c.askForProducer(ctx)
		if !errors.Is(err, kafkago.GroupLoadInProgress) || sleep(patient, producerPause) != nil {
			return got, err
		}
	}
}

// askForProducer asks one broker after the other until one answers.
func (c *cluster) askForProducer(ctx context.Context) (stamp, error) {
	var failure error
	for _, address := range c.candidates() {
		got, err := c.askProducerOf(ctx, address)
		if err == nil {
			return got, nil
		}
		if failure = joined(failure, err); ctx.Err() != nil {
			break
		}
	}
	if failure == nil {
		failure = errClosed
	}
	return unstamped, fmt.Errorf("ask for a producer id: %w", failure)
}

func (c *cluster) askProducerOf(ctx context.Context, address string) (stamp, error) {
	reply, err := c.call(ctx, address, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return unstamped, err
	}
	res := reply.(*initproducerid.Response)
	if res.ErrorCode != 0 {
		return unstamped, producerRefused{address, res.ErrorCode}
	}
	return stamp{producer: res.ProducerID, epoch: res.ProducerEpoch}, nil
}

// producerRefused is a broker's answer to the question for a producer id.
type producerRefused struct {
	address string
	code    int16
}

func (e producerRefused) Error() string {
	text := fmt.Sprintf("broker %s: %v", e.address, e.Unwrap())
	if kafkago.Error(e.code) == kafkago.ClusterAuthorizationFailed {
		text += ": keeping the order takes Write on a topic, before Kafka 2.8 IdempotentWrite on the cluster"
	}
	return text
}

func (e producerRefused) Unwrap() error { return codeError(e.code, "") }
