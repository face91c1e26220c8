package sinks

import (
	"context"
	"log/slog"
)

// Sink publishes messages to one broker or cluster. All methods may be called at once from many goroutines.
type Sink interface {
	// Publish sends the batch and says of each message, by its index, what the broker said: results has the length
	// of batch and arrives zeroed, which means [Unknown], so an entry that is forgotten, an early return or a panic
	// can only cost a duplicate. Addresses may differ within a batch; order within an address (and key) is kept.
	//
	// Publish returns when every result is known, or soon after ctx is done: within a second, with every message
	// that was never handed to the broker as [Unavailable] and every message without an answer as [Unknown]. ctx
	// always has a deadline. Publish never tries a message again, with two exceptions, both for messages the broker
	// has definitely not taken: another leader, and halving a batch whose refusal may concern only some of it. It
	// starts nothing that goes on after it returned and keeps nothing of the batch.
	Publish(ctx context.Context, batch []Message, results []Result)

	// Check says whether the address takes messages, without leaving one behind: nil, or why not. An empty address
	// asks for the broker alone, what [Parented] names for that place alone. It is bounded by ctx. The error names the address.
	Check(ctx context.Context, address string) error

	// Close releases connections and goroutines, bounded by ctx. Calls of Publish still under way return soon, as if
	// their context had ended. It may be called twice.
	Close(ctx context.Context) error
}

// Sequencer is a [Sink] that may be given a run of Ordered messages of one kind and key in one call. It promises that
// the run stays whole: the broker has them in the order of the batch, and once one of them isn't Accepted, none behind it
// is: those are [Unavailable]. A late copy of an attempt that ended Unknown doesn't land behind what was Accepted since.
//
// A sink that isn't one is given an ordered message only when all before it, of its kind and key, were Accepted.
type Sequencer interface {
	Sink
	// KeepsOrder does nothing: to have it is the promise.
	KeepsOrder()
}

// Outcome is what became of one message at one destination.
type Outcome uint8

const (
	// Unknown: it was or may have been sent and no word came: a cut, a time-out, a garbled reply.
	Unknown Outcome = iota
	// Accepted: the broker's durable word that it has this message.
	Accepted
	// Unavailable: the broker has definitely not taken it, and not because of this message: no connection,
	// throttled, not enough replicas, another leader, no such topic (yet), time over before its turn or too little of it
	// left (see [InTime]).
	Unavailable
	// Rejected: this message can never be accepted there: too large, an illegal name, a value that can't be sent.
	Rejected
	// Failed: the broker refused it this time.
	Failed
)

// Scope says what a result that isn't Accepted concerns, and with it what should pause.
type Scope uint8

const (
	// ScopeMessage: this message alone; nothing pauses.
	ScopeMessage Scope = iota
	// ScopeAddress: everything for the same address: a missing topic, no permission on it, no word while others were
	// answered.
	ScopeAddress
	// ScopeParent: everything whose address lies in the same wider place (see [Parented]): an exchange that is missing. A
	// sink that has none means the address.
	ScopeParent
	// ScopeSink: the whole broker: no connection, authentication refused, no word to anybody.
	ScopeSink
)

// Result is the outcome of one message. Err is nil only when Accepted; its text names the broker's code and words,
// or the rule with its figures, and never a payload or a secret.
type Result struct {
	Outcome Outcome
	Scope   Scope
	Err     error
}

// Type is a kind of sink: one line in the list of cmd/relay.
type Type struct {
	Name     string          // "kafka": what routes and RELAY_SINKS name
	Settings func() Settings // a pointer to a fresh settings struct with `env` tags, see package config
}

// Settings are those of one sink. They are decoded from RELAY_<NAME>_… by the caller.
type Settings interface {
	// Validate checks relations between settings. Each error begins with the setting's name without prefix, as in
	// "TLS_KEY: is needed with TLS_CERT".
	Validate() []error
	// CheckAddress says why an address can never be valid, or nil. It is asked about those of the routes at the start,
	// with a letter for each value that comes with the job, and about each job's own: then it is the job's fault.
	CheckAddress(address string) error
	// Open makes the sink. It doesn't connect: a broker that is away doesn't stop a start.
	Open(name string, log *slog.Logger) (Sink, error)
}

// Parented is a [Settings] whose addresses lie in wider places, which can be missing with all that is in them.
type Parented interface {
	Settings
	// Parent names the wider place of an address: the exchange of a routing key. It is no address itself, but Check may be
	// asked about it. "" is none.
	Parent(address string) string
}
