package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/sinks"
)

const (
	// requestBytes is how much one request carries before compression, unless a single message is larger.
	requestBytes = 32 << 20
	// maxFrame is the largest request that a broker takes by default (socket.request.max.bytes, 100 MiB). It cuts
	// the connection on a larger one instead of answering, which would look like an outage.
	maxFrame = 100<<20 - 4
)

// lane sends the queues of one leader, the first piece of each at a time: the next one of a partition only when the
// one before is appended.
func (p *publication) lane(leader int32, queues []*queue) {
	defer func() { p.survive(queues, recover()) }()
	defer func() { p.letGo(queues) }()
	broker := p.cluster.leader(leader)
	if broker == nil {
		for _, q := range queues {
			p.move(q, fmt.Errorf("partition %d of topic %s has no leader: %w", q.partition, q.target.topic.name, kafkago.LeaderNotAvailable))
		}
		return
	}
	for {
		queues = slices.DeleteFunc(queues, func(q *queue) bool { return len(q.pieces) == 0 || q.moved != nil })
		if len(queues) == 0 {
			return
		}
		if busy := p.send(broker, p.load(queues)); busy != nil {
			p.await(busy)
		}
	}
}

// survive turns a panic in a lane, which would end the process, into unknown results.
func (p *publication) survive(queues []*queue, cause any) {
	if cause == nil {
		return
	}
	p.log.Error("publish panicked", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
	for _, q := range queues {
		for _, i := range slices.Concat(q.pieces...) {
			p.results[i] = sinks.Result{Err: fmt.Errorf("publish panicked, see the log")}
		}
		q.pieces = nil
	}
}

// load takes as many queues as fit into one request.
func (p *publication) load(queues []*queue) []*queue {
	size := 0
	for n, q := range queues {
		size += p.bound(q.first())
		if n > 0 && size > requestBytes {
			return queues[:n]
		}
	}
	return queues
}

// bound is never less than the bytes that messages take before compression.
func (p *publication) bound(index []int) int {
	size := batchHeader
	for _, i := range index {
		size += sizeBound(&p.batch[i])
	}
	return size
}

// send sends the first piece of each queue in one request and rules on each by what the broker says. When all of them
// need sequences that other calls use, it sends nothing and returns the first.
func (p *publication) send(broker *pool, queues []*queue) (busy *queue) {
	if err := broker.acquire(p.ctx, p.start); err != nil {
		p.noTurn(broker, queues, err)
		return nil
	}
	defer broker.release()
	c, err := broker.get(p.ctx)
	if err != nil {
		p.unsent(queues, err)
		return nil
	}
	defer broker.put(c)
	if queues, busy = p.number(queues); len(queues) == 0 {
		return busy
	}
	if err := inTime(p.ctx, p.start); err != nil { // to connect, or to number, took long
		p.noTurn(broker, queues, err)
		return nil
	}
	p.produce(broker, c, queues)
	return nil
}

// produce sends what has its turn and its numbers.
func (p *publication) produce(broker *pool, c *conn, queues []*queue) {
	reply, sent, err := p.roundTrip(c, queues)
	var oversize oversizeError
	switch {
	case errors.As(err, &oversize):
		p.conclude(queues[0], untouched)
		p.refuse(queues[0], sinks.Result{Outcome: sinks.Rejected, Err: err})
	case err == nil:
		if reply.throttle > 0 {
			broker.throttle(reply.throttle)
		}
		for _, q := range queues {
			a, ok := reply.answers[place{q.target.topic.name, int32(q.partition)}]
			p.rule(q, a, ok)
		}
	case sent:
		r := sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: fmt.Errorf("sent to broker %s, and no word: %w", broker.address, err)}
		if interrupted(p.ctx) {
			r.Scope = sinks.ScopeMessage
		}
		p.stopAll(queues, r, unsure)
	default:
		p.unsent(queues, fmt.Errorf("broker %s: %w", broker.address, err))
	}
}

// noTurn rules on messages whose turn didn't come, or too late: the broker may be well, and only busy.
func (p *publication) noTurn(broker *pool, queues []*queue, err error) {
	p.stopAll(queues, sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("not sent, no turn at broker %s: %w", broker.address, err)}, untouched)
}

// unsent rules on messages of which not a byte has left: another broker may lead by now.
func (p *publication) unsent(queues []*queue, err error) {
	if p.ctx.Err() != nil {
		p.stopAll(queues, p.unreached(err), untouched)
		return
	}
	for _, q := range queues {
		p.conclude(q, untouched)
		if len(q.pieces) > 0 {
			p.move(q, err)
		}
	}
}

// roundTrip writes one produce request and reads its reply.
func (p *publication) roundTrip(c *conn, queues []*queue) (reply produceReply, sent bool, err error) {
	e := p.encoders.Get().(*encoder)
	defer p.keep(e)
	version, correlation := c.version(produceKey), c.next()
	if err := p.encode(e, version, correlation, queues); err != nil {
		return produceReply{}, false, err
	}
	if len(e.frame) > maxFrame { // only a single message can be that large
		return produceReply{}, false, oversizeError(len(e.frame))
	}
	frame, sent, err := c.exchange(p.ctx, e.frame, correlation)
	if err != nil {
		return produceReply{}, sent, err
	}
	reply, err = parseReply(frame[8:], version)
	c.broken = c.broken || err != nil
	return reply, true, err
}

// oversizeError is a request of that many bytes.
type oversizeError int

func (e oversizeError) Error() string {
	return fmt.Sprintf("the message takes a request of %d bytes, a broker takes %d (socket.request.max.bytes)", int(e), maxFrame)
}

// keep keeps an encoder for the next request, unless its buffers have become larger than most requests need.
func (p *publication) keep(e *encoder) {
	if cap(e.frame)+cap(e.records) <= 4<<20 {
		p.encoders.Put(e)
	}
}

// encode writes the request into the encoder's frame.
func (p *publication) encode(e *encoder, version int16, correlation int32, queues []*queue) error {
	topics, size := 0, 0
	for n, q := range queues {
		if n == 0 || q.target != queues[n-1].target {
			topics++
		}
		size += p.bound(q.first())
	}
	e.frame = slices.Grow(e.frame[:0], size+300*len(queues)) // a batch's and a topic's overhead
	// The broker gives up on its replicas a little before we give up on it, so that it can say so.
	wait := 10 * time.Second
	if deadline, ok := p.ctx.Deadline(); ok {
		wait = max(time.Until(deadline)*9/10, time.Millisecond)
	}
	now := time.Now()
	be := binary.BigEndian
	f := appendProduce(e.frame, version, correlation, p.acks, wait, topics)
	for n, q := range queues {
		if n == 0 || q.target != queues[n-1].target {
			f = appendName(f, q.target.topic.name)
			partitions := 1
			for n+partitions < len(queues) && queues[n+partitions].target == q.target {
				partitions++
			}
			f = be.AppendUint32(f, uint32(partitions))
		}
		f = be.AppendUint32(f, uint32(q.partition))
		f = be.AppendUint32(f, 0)
		start := len(f)
		var err error
		if f, err = e.appendBatch(f, p.batch, q.first(), now, q.stamp()); err != nil {
			return err
		}
		q.size = len(f) - start
		be.PutUint32(f[start-4:], uint32(q.size))
	}
	endFrame(f)
	e.frame = f
	return nil
}

// rule decides on the first piece of a queue by the broker's answer.
func (p *publication) rule(q *queue, a answer, ok bool) {
	if !ok {
		p.conclude(q, unsure)
		p.stop(q, sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeAddress, Err: fmt.Errorf("the reply has no word on %s", q)})
		return
	}
	if a.code == 0 {
		p.conclude(q, appended)
		p.decide(q, sinks.Result{Outcome: sinks.Accepted})
		return
	}
	if a.landed {
		for _, i := range q.first() {
			p.landed[i] = true
		}
	}
	r, err := ruleOnBatch(a, q.sequence != nil)
	p.conclude(q, r.fate())
	err = fmt.Errorf("%s: %w", q, err)
	switch {
	case r.outcome == sinks.Accepted:
		p.decide(q, sinks.Result{Outcome: sinks.Accepted})
	case r.moved:
		p.move(q, err)
	case r.narrow:
		p.narrow(q, a, r, err)
	default:
		p.stop(q, sinks.Result{Outcome: r.outcome, Scope: r.scope, Err: err})
	}
}

func (q *queue) String() string {
	return fmt.Sprintf("topic %s, partition %d", q.target.topic.name, q.partition)
}

// decide gives the messages of the first piece a result.
func (p *publication) decide(q *queue, r sinks.Result) {
	for _, i := range q.first() {
		p.results[i] = r
	}
	q.pieces = q.pieces[1:]
}

// refuse gives the messages of the first piece a result that isn't Accepted, and goes on with what isn't behind them.
func (p *publication) refuse(q *queue, r sinks.Result) {
	piece := q.first()
	p.decide(q, r)
	for _, i := range piece {
		p.holdBack(q, i)
	}
}

// stop gives the messages of the first piece a result and sends no more of the queue: what comes later in a partition
// must not overtake.
func (p *publication) stop(q *queue, r sinks.Result) {
	if len(q.pieces) == 0 {
		return
	}
	p.decide(q, r)
	rest := r
	if r.Outcome != sinks.Unavailable {
		rest = sinks.Result{Outcome: sinks.Unavailable, Scope: r.Scope, Err: fmt.Errorf("%w: %w", errSkipped, r.Err)}
	}
	for len(q.pieces) > 0 {
		p.decide(q, rest)
	}
}

func (p *publication) stopAll(queues []*queue, r sinks.Result, f fate) {
	for _, q := range queues {
		p.conclude(q, f)
		p.stop(q, r)
	}
}

// move notes that a queue was not taken here.
func (p *publication) move(q *queue, err error) {
	q.moved = &sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeAddress, Err: err}
}
