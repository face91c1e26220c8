package kafka

import (
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

// ruling is what an error code for a partition means for the messages sent there.
type ruling struct {
	outcome sinks.Outcome
	scope   sinks.Scope
	moved   bool   // another broker may take it: ask who leads, send once more
	narrow  bool   // the batch was refused as a whole, maybe because of some of it: find out which
	stamp   fate   // what it means for the batch's stamp, where the rest doesn't say
	hint    string // what an operator can do
}

var (
	unavailable = ruling{outcome: sinks.Unavailable, scope: sinks.ScopeAddress}
	moved       = ruling{outcome: sinks.Unavailable, scope: sinks.ScopeAddress, moved: true}
	unknown     = ruling{outcome: sinks.Unknown, scope: sinks.ScopeAddress}
	sinkDown    = ruling{outcome: sinks.Unavailable, scope: sinks.ScopeSink}
	refused     = ruling{outcome: sinks.Rejected, narrow: true}
	failed      = ruling{outcome: sinks.Failed, narrow: true}
)

// rulings by code. What isn't here may have been appended for all we know, and is unknown.
var rulings = map[kafkago.Error]ruling{
	// Appended at the leader, without the word of the replicas.
	kafkago.RequestTimedOut:              unknown,
	kafkago.NotEnoughReplicasAfterAppend: unknown,

	// Not appended, unless the answer has offsets (answer.landed): this broker doesn't lead the partition, or not yet, or
	// no more.
	kafkago.UnknownTopicOrPartition: moved,
	kafkago.LeaderNotAvailable:      moved,
	kafkago.NotLeaderForPartition:   moved,
	kafkago.BrokerNotAvailable:      moved,
	kafkago.ReplicaNotAvailable:     moved,
	kafkago.ListenerNotFound:        moved,
	kafkago.FencedLeaderEpoch:       moved,
	kafkago.UnknownLeaderEpoch:      moved,
	kafkago.UnknownTopicID:          moved,
	kafkago.InconsistentTopicID:     moved,

	// Not appended: something must change at the topic or in the settings first.
	kafkago.NotEnoughReplicas:           unavailable,
	kafkago.TopicAuthorizationFailed:    unavailable.with("the user needs Describe and Write on the topic"),
	kafkago.UnsupportedForMessageFormat: unavailable,
	kafkago.UnsupportedCompressionType:  unavailable.with("choose another COMPRESSION"),
	// The timestamp is the time of sending, so it can't be the message that is wrong.
	kafkago.InvalidTimestamp: unavailable.with("the clocks of relay and broker differ by more than the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms"),

	kafkago.ThrottlingQuotaExceeded:    sinkDown,
	kafkago.ClusterAuthorizationFailed: sinkDown,
	kafkago.SASLAuthenticationFailed:   sinkDown,
	kafkago.UnsupportedSASLMechanism:   sinkDown,
	kafkago.IllegalSASLState:           sinkDown,
	kafkago.UnsupportedVersion:         sinkDown,
	kafkago.InvalidRequiredAcks:        sinkDown,

	// Not appended, because of at least one of the batch.
	kafkago.MessageSizeTooLarge: refused,
	kafkago.RecordListTooLarge:  refused,
	kafkago.InvalidRecord:       refused,
	kafkago.InvalidTopic:        {outcome: sinks.Rejected}, // each of them has this topic
	// Not appended, and it isn't said whether a message, the network or the relay is to blame.
	kafkago.InvalidMessage:  failed,
	kafkago.InvalidRequest:  failed,
	kafkago.PolicyViolation: failed,
}

// stampRulings are those of codes that only batches with a stamp can get.
var stampRulings = map[kafkago.Error]ruling{
	// The broker has this very batch.
	kafkago.DuplicateSequenceNumber: {outcome: sinks.Accepted},
	// Not appended: the partition has lost what it knew of the producer, or was made anew.
	kafkago.OutOfOrderSequenceNumber: {outcome: sinks.Unavailable, scope: sinks.ScopeAddress, stamp: outOfStep},
	kafkago.UnknownProducerId:        {outcome: sinks.Unavailable, scope: sinks.ScopeAddress, stamp: outOfStep},
	// Not appended: somebody else uses the producer id, as can happen in a cluster that was restored.
	kafkago.InvalidProducerEpoch: {outcome: sinks.Unavailable, scope: sinks.ScopeAddress, stamp: fenced},
	kafkago.ProducerFenced:       {outcome: sinks.Unavailable, scope: sinks.ScopeAddress, stamp: fenced},
}

// ruleOnBatch returns the ruling on an answer that isn't plain success, and the error with the broker's words.
func ruleOnBatch(a answer, stamped bool) (ruling, error) {
	if r, ok := stampRulings[kafkago.Error(a.code)]; ok && stamped {
		return r, codeError(a.code, a.message)
	}
	return ruleOn(a.code, a.message)
}

// fate is what a ruling means for the stamp of the batch. A leader that steps down while it waits for its replicas says
// that it isn't the leader, and its replicas may have the batch.
func (r ruling) fate() fate {
	switch {
	case r.stamp != untouched:
		return r.stamp
	case r.outcome == sinks.Accepted:
		return appended
	case r.moved || r.outcome == sinks.Unknown:
		return unsure
	default:
		return untouched
	}
}

func (r ruling) with(hint string) ruling {
	r.hint = hint
	return r
}

// ruleOn returns the ruling on a code, and the error with the broker's words.
func ruleOn(code int16, message string) (ruling, error) {
	r, ok := rulings[kafkago.Error(code)]
	if !ok {
		r = unknown
	}
	err := codeError(code, message)
	if r.hint != "" {
		err = fmt.Errorf("%w: %s", err, r.hint)
	}
	return r, err
}

// codeError is Kafka's code in words: the broker's own, or else what the code means.
func codeError(code int16, message string) error {
	return brokerError{kafkago.Error(code), strings.TrimRight(message, ". ")}
}

type brokerError struct {
	code    kafkago.Error
	message string
}

func (e brokerError) Error() string {
	if e.message == "" {
		return e.code.Error()
	}
	return fmt.Sprintf("[%d] %s: %.300s", int(e.code), e.code.Title(), e.message)
}

func (e brokerError) Unwrap() error { return e.code }
