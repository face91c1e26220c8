package kafka

import (
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// ordered makes n messages of one key whose order counts.
func ordered(topic string, n int) []sinks.Message {
	batch := keyed(messages(topic, n), "k")
	for i := range batch {
		batch[i].Ordered = true
	}
	return batch
}

// wantLog fails unless a topic has received just these messages, by number.
func wantLog(t *testing.T, broker, topic string, want ...int) {
	t.Helper()
	var got []int
	for _, id := range ids(readAll(t, broker, topic, len(want))) {
		got = append(got, number(id))
	}
	if !slices.Equal(got, want) {
		t.Errorf("topic %s has %v, want %v", topic, got, want)
	}
}

// TestLateAttempt: the first attempt is held back on the way and times out; it arrives when the messages have been sent
// again and more has been accepted since. Without a stamp it lands behind them, which shows that it does arrive.
func TestLateAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before int // messages that the partition has already
		first  int // messages in the attempt that is held back
		order  bool
		code   kafkago.Error // what the broker says of the late attempt
		log    []int
	}{
		{"alone, the first of its partition", 0, 1, true, 0, []int{0, 1, 2}},
		{"alone", 2, 1, true, 0, []int{0, 1, 2, 3, 4}},
		{"of a run", 2, 3, true, kafkago.InvalidProducerEpoch, []int{0, 1, 2, 3, 4}},
		{"of a run, the first of its partition", 0, 3, true, kafkago.InvalidProducerEpoch, []int{0, 1, 2}},
		{"order doesn't count", 2, 1, false, 0, []int{0, 1, 2, 3, 4, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, s, topic := withHolder(t)
			batch := ordered(topic, c.before+3)
			for i := range batch {
				batch[i].Ordered = c.order
			}
			for i := range c.before {
				accepted(t, publish(t, s, batch[i:i+1]))
			}
			h.hold(1)
			wantAll(t, publishIn(t, s, batch[c.before:c.before+c.first], time.Second), sinks.Unknown, sinks.ScopeSink)
			for i := c.before; i < len(batch); i++ {
				batch[i].Attempt++
				accepted(t, publish(t, s, batch[i:i+1]))
			}
			if codes := h.letThrough(t, topic, 0); len(codes) != 1 || codes[0] != c.code {
				t.Errorf("the broker says %v of the late attempt, want %d", codes, int(c.code))
			}
			wantLog(t, h.broker, topic, c.log...)
		})
	}
}

// TestLateAttemptOfAnotherProcess is what a stamp can't prevent: the process that tries again has another producer id. The
// first copies are in order all the same.
func TestLateAttemptOfAnotherProcess(t *testing.T) {
	t.Parallel()
	h, first, topic := withHolder(t)
	batch := ordered(topic, 3)
	accepted(t, publish(t, first, batch[:1]))
	h.hold(1)
	wantAll(t, publishIn(t, first, batch[1:2], time.Second), sinks.Unknown, sinks.ScopeSink)
	second := open(t, h.broker)
	accepted(t, publish(t, second, batch[1:]))
	if codes := h.letThrough(t, topic, 0); len(codes) != 1 || codes[0] != 0 {
		t.Errorf("the broker says %v of the late attempt", codes)
	}
	wantLog(t, h.broker, topic, 0, 1, 2, 1)
}

// TestLateAttemptManyTimes: none of several attempts lands, also when other keys of the partition went on meanwhile.
func TestLateAttemptManyTimes(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	batch := ordered(topic, 6)
	other := "other"
	batch[0].Key, batch[5].Key = &other, &other
	accepted(t, publish(t, s, batch[:1]))
	for n := range 3 {
		h.hold(1)
		wantAll(t, publishIn(t, s, batch[1:4-n], time.Second), sinks.Unknown, sinks.ScopeSink)
	}
	accepted(t, publish(t, s, batch[5:]))
	accepted(t, publish(t, s, batch[1:5]))
	if codes := h.letThrough(t, topic, 0); slices.Contains(codes[:2], 0) {
		t.Errorf("the broker says %v of the late attempts", codes)
	}
	wantLog(t, h.broker, topic, 0, 5, 1, 2, 3, 4)
}

// TestLeaderStepsDown after it has appended a batch, while it waits for its replicas, which have the batch as well: it says
// that it isn't the leader. Sent to the next leader, the batch is known again.
func TestLeaderStepsDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order bool
		log   []int
	}{"ordered": {true, []int{0, 1, 2, 3}}, "order doesn't count": {false, []int{0, 1, 2, 1, 2, 3}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, s, topic := withHolder(t)
			batch := ordered(topic, 4)
			for i := range batch {
				batch[i].Ordered = c.order
			}
			accepted(t, publish(t, s, batch[:1]))
			h.answerWith(kafkago.NotLeaderForPartition)
			accepted(t, publish(t, s, batch[1:3]))
			accepted(t, publish(t, s, batch[3:]))
			wantLog(t, h.broker, topic, c.log...)
		})
	}
}

// TestNoLeaderThenAnother: both leaders that were asked step down with the batch in their logs. It must not be taken for
// the batch of another key that comes next.
func TestNoLeaderThenAnother(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	batch := twoKeys(topic, 3)
	accepted(t, publish(t, s, batch[:1]))
	h.answerWith(kafkago.NotLeaderForPartition, kafkago.NotLeaderForPartition)
	wantAll(t, publish(t, s, batch[1:2]), sinks.Unknown, sinks.ScopeAddress)
	accepted(t, publish(t, s, batch[2:]))
	accepted(t, publish(t, s, batch[1:2]))
	wantLog(t, h.broker, topic, 0, 1, 2)
}

// TestSeveralInDoubt: keys whose attempts without a word were made with several sequences come together. All of the
// attempts that arrive late are refused.
func TestSeveralInDoubt(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	batch := ordered(topic, 9)
	for i := range batch {
		key := []string{"a", "b", "c"}[i%3]
		batch[i].Key = &key
	}
	for i := range 3 {
		h.hold(1)
		wantAll(t, publishIn(t, s, batch[i:i+1], time.Second), sinks.Unknown, sinks.ScopeSink)
	}
	accepted(t, publish(t, s, batch[:6]))
	accepted(t, publish(t, s, batch[6:]))
	if codes := h.letThrough(t, topic, 0); len(codes) != 3 || slices.Contains(codes, 0) {
		t.Errorf("the broker says %v of the late attempts", codes)
	}
	var keys [3][]int
	for _, id := range ids(read(t, h.broker, topic, 9)) {
		n := number(id)
		keys[n%3] = append(keys[n%3], n)
	}
	for key, got := range keys {
		if want := []int{key, key + 3, key + 6}; !slices.Equal(got, want) {
			t.Errorf("key %d has %v, want %v", key, got, want)
		}
	}
}

// TestOrderedSettings: a real broker takes stamps with every setting that changes what they are on.
func TestOrderedSettings(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	for _, env := range []map[string]string{{"ACKS": "1"}, {"COMPRESSION": "none"}, {"COMPRESSION": "gzip"}, {"COMPRESSION": "snappy"}, {"COMPRESSION": "zstd"}} {
		topic := newTopic(t, broker, 1)
		s := open(t, broker, env)
		batch := fill(ordered(topic, 20), 200)
		accepted(t, publish(t, s, batch[:10]))
		accepted(t, publish(t, s, batch[10:]))
		wantLog(t, broker, topic, numbers(0, 20)...)
	}
}

// TestTopicIsMadeAnew: a partition that has lost what it knew of the producer takes messages again, at once or soon.
func TestTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	realAndFake(t, func(t *testing.T, broker string) {
		topic := newTopic(t, broker, 1)
		s := open(t, broker)
		batch := ordered(topic, 5)
		accepted(t, publish(t, s, batch[:3]))
		adm := kadm.NewClient(client(t, broker))
		if _, err := adm.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		until(t, "the topic is made anew", func() bool {
			_, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic)
			return err == nil
		})
		until(t, "it takes messages", func() bool { return publish(t, s, batch[3:4])[0].Outcome == sinks.Accepted })
		accepted(t, publish(t, s, batch[4:]))
		wantLog(t, broker, topic, 3, 4)
	})
}

// TestDuplicateIsAccepted: the broker says that it has this very batch.
func TestDuplicateIsAccepted(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	batch := ordered(topic, 3)
	h.answerWith(kafkago.DuplicateSequenceNumber)
	accepted(t, publish(t, s, batch[:2]))
	accepted(t, publish(t, s, batch[2:]))
	wantLog(t, h.broker, topic, 0, 1, 2)
}

// TestLostAnswerThenAnother: what was appended without a word must not be taken for the message that comes next, when
// the first one is given up.
func TestLostAnswerThenAnother(t *testing.T) {
	t.Parallel()
	h, s, topic := withHolder(t)
	batch := ordered(topic, 3)
	accepted(t, publish(t, s, batch[:1]))
	h.answerWith(kafkago.RequestTimedOut)
	wantAll(t, publish(t, s, batch[1:2]), sinks.Unknown, sinks.ScopeAddress)
	accepted(t, publish(t, s, batch[2:]))
	wantLog(t, h.broker, topic, 0, 1, 2)
}

// TestLostAnswer: the broker has the message and its word gets lost. Tried again, alone as a relay does, it is known again.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	listener, advertised := services.KafkaProxied(t)
	proxy := sinktest.NewProxyAt(t, advertised, listener)
	topic := newTopic(t, broker, 1)
	s := open(t, advertised)
	batch := ordered(topic, 3)
	accepted(t, publish(t, s, batch[:1]))
	proxy.Swallow()
	wantAll(t, publishIn(t, s, batch[1:2], time.Second), sinks.Unknown, sinks.ScopeSink)
	proxy.Heal()
	other := keyed(ordered(topic, 4)[3:], "other")
	accepted(t, publish(t, s, other))
	batch[1].Attempt++
	accepted(t, publish(t, s, batch[1:2]))
	accepted(t, publish(t, s, batch[2:]))
	wantLog(t, broker, topic, 0, 1, 3, 2)
}
