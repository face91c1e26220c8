package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

const (
	// pieceBytes is how much goes to one partition in one record batch, before compression: under the usual
	// max.message.bytes of 1,048,588.
	pieceBytes = 900_000
	// tries is how often messages that were definitely not taken are sent: once more when their leader has moved.
	tries = 2
)

// publication is one call of Publish under way. Its lanes write results of different messages, never of the same.
type publication struct {
	*sink
	ctx     context.Context
	start   time.Time
	batch   []sinks.Message
	results []sinks.Result
	landed  []bool // by message: a leader has appended it, and had no good word for it
	targets map[string]*target
	order   []*queue // all of them, by topic
	key     []byte   // scratch
	links   []link   // by message; nil: the order of none counts
	rounds  int
}

// target is one topic of the batch.
type target struct {
	described
	refusal *sinks.Result // what becomes of all messages to it, when it can't be used
	queues  map[int]*queue
}

// queue holds what goes to one partition, in order.
type queue struct {
	target    *target
	partition int
	leader    int32
	index     []int   // into the batch
	pieces    [][]int // of index, each a record batch; empty when all is decided
	size      int     // of the first piece as it was sent
	moved     *sinks.Result
	sequence  *sequence // that the first piece is sent with; nil: without
	numbered  []int     // the piece that got it: the first one of then
}

// first is the piece that is sent, or is next. There is one until all is decided.
func (q *queue) first() []int { return q.pieces[0] }

func (p *publication) run() {
	if p.ctx.Err() != nil {
		p.all(sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("not sent: %w", ended(p.ctx))})
		return
	}
	if err := p.resolve(time.Time{}); err != nil {
		p.all(p.unreached(err))
		return
	}
	p.plan()
	for round := range p.rounds {
		p.enqueue(round)
		p.carry()
		p.closeRound(round)
	}
	p.doubt()
}

// doubt turns the results of messages that a leader has appended, and that nobody took in the end, into unknown ones: its
// replicas, or its log when it comes back, may have them.
func (p *publication) doubt() {
	for i, landed := range p.landed {
		if landed && p.results[i].Outcome == sinks.Unavailable {
			p.results[i].Outcome, p.results[i].Err = sinks.Unknown, fmt.Errorf("a leader has appended it without a good word; then: %w", p.results[i].Err)
		}
	}
}

// carry sends what is in the queues, and once more where a leader has moved.
func (p *publication) carry() {
	for try := 1; ; try++ {
		start := time.Now()
		p.dispatch()
		moved := slices.DeleteFunc(slices.Clone(p.order), func(q *queue) bool { return q.moved == nil })
		if len(moved) == 0 {
			return
		}
		if try == tries || !p.follow(moved, start) {
			for _, q := range moved {
				p.stop(q, *q.moved)
			}
			return
		}
	}
}

// all gives every message of the batch the same result.
func (p *publication) all(r sinks.Result) {
	for i := range p.results {
		p.results[i] = r
	}
}

// unreached is the result of messages for which no broker could be reached.
func (p *publication) unreached(err error) sinks.Result {
	r := sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: fmt.Errorf("not sent: %w", err)}
	if interrupted(p.ctx) {
		r.Scope = sinks.ScopeMessage
	}
	return r
}

// interrupted says whether the caller gave up, or Close did: then silence is no sign that the broker is in trouble.
func interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// resolve finds out about the topics of the batch. Messages whose topic can't exist are rejected.
func (p *publication) resolve(since time.Time) error {
	if p.targets == nil {
		p.targets = map[string]*target{}
		for i := range p.batch {
			p.target(p.batch[i].Address)
		}
	}
	var names []string
	for name, t := range p.targets {
		if t.refusal == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	known, err := p.cluster.describe(p.ctx, names, since)
	if err != nil {
		return err
	}
	for _, name := range names {
		p.targets[name].described = known[name]
		p.targets[name].rule()
	}
	return nil
}

func (p *publication) target(address string) *target {
	t := p.targets[address]
	if t != nil {
		return t
	}
	t = &target{queues: map[int]*queue{}}
	if err := checkTopic(address); err != nil {
		t.refusal = &sinks.Result{Outcome: sinks.Rejected, Err: err}
	}
	p.targets[address] = t
	return t
}

// rule refuses what goes to a topic that the cluster gave an error for.
func (t *target) rule() {
	if t.code == 0 {
		return
	}
	r, err := ruleOn(t.code, "")
	if r.outcome == sinks.Unknown || r.outcome == sinks.Failed {
		r = unavailable // nothing has been sent
	}
	t.refusal = &sinks.Result{Outcome: r.outcome, Scope: r.scope, Err: fmt.Errorf("topic %s: %w", t.topic.name, err)}
}

// enqueue gives each message of a round its partition, and cuts what goes to one into pieces.
func (p *publication) enqueue(round int) {
	p.order = nil
	for _, t := range p.targets {
		clear(t.queues)
	}
	for i := range p.batch {
		if !p.in(round, i) {
			continue
		}
		m := &p.batch[i]
		t := p.targets[m.Address]
		if r := p.runOf(i); r != nil && r.failed >= 0 && p.behind(i, r.failed) {
			p.results[i] = p.skipped(r.failed)
			continue
		}
		if t.refusal != nil {
			p.results[i] = *t.refusal
			continue
		}
		partition := p.partition(t, m)
		q := t.queues[partition]
		if q == nil {
			q = &queue{target: t, partition: partition, leader: t.leaders[partition]}
			t.queues[partition] = q
			p.order = append(p.order, q)
		}
		q.index = append(q.index, i)
	}
	slices.SortStableFunc(p.order, func(a, b *queue) int {
		return strings.Compare(a.target.topic.name, b.target.topic.name)
	})
	for _, q := range p.order {
		q.pieces = p.cut(q.index, q.target.topic.limit.piece())
	}
}

// partition chooses where a message goes.
func (p *publication) partition(t *target, m *sinks.Message) int {
	if keyless(p.partitioner, m) {
		return t.topic.sticky.next(t.layout, sizeBound(m))
	}
	if p.key == nil {
		p.key = make([]byte, 0, 64) // to the partitioners nil is no key, and an empty one is a key
	}
	p.key = append(p.key[:0], *m.Key...)
	return p.partitioner.Balance(kafkago.Message{Key: p.key}, t.ids...)
}

// cut divides messages into pieces of at most limit bytes; a single one may be larger.
func (p *publication) cut(index []int, limit int) [][]int {
	var pieces [][]int
	from, size := 0, batchHeader
	for n, i := range index {
		more := sizeBound(&p.batch[i])
		if n > from && size+more > limit {
			pieces = append(pieces, index[from:n])
			from, size = n, batchHeader
		}
		size += more
	}
	return append(pieces, index[from:])
}

// dispatch sends what is in the queues, to all leaders at once, until each queue is empty or has moved.
func (p *publication) dispatch() {
	lanes := map[int32][]*queue{}
	for _, q := range p.order {
		if len(q.pieces) > 0 {
			lanes[q.leader] = append(lanes[q.leader], q)
		}
	}
	var all sync.WaitGroup
	for leader, queues := range lanes {
		if len(lanes) == 1 {
			p.lane(leader, queues)
			return
		}
		all.Go(func() { p.lane(leader, queues) })
	}
	all.Wait()
}

// follow finds the new leaders of what has moved and says whether it's worth another try.
func (p *publication) follow(moved []*queue, since time.Time) bool {
	if err := p.resolve(since); err != nil {
		if p.ctx.Err() == nil { // no broker answers: it isn't about these topics
			for _, q := range moved {
				*q.moved = p.unreached(err)
			}
		}
		return false
	}
	for _, q := range moved {
		if q.target.refusal != nil { // gone meanwhile
			p.stop(q, *q.target.refusal)
			q.moved = nil
			continue
		}
		q.moved, q.leader = nil, -1
		if leader, ok := q.target.leaders[q.partition]; ok {
			q.leader = leader
		}
	}
	return true
}
