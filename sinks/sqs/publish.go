package sqs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// publication is one call of Publish.
type publication struct {
	*sink
	ctx     context.Context
	start   time.Time
	batch   []sinks.Message
	results []sinks.Result
	silent  []bool // by message: a call for it had no answer that makes sense
}

func (s *sink) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		for i := range results {
			results[i] = tooLate(err)
		}
		return
	}
	defer leave()
	p := &publication{sink: s, ctx: ctx, start: time.Now(), batch: batch, results: results, silent: make([]bool, len(batch))}
	strands := p.prepare()
	p.parallel(len(strands), func(i int) { p.run(strands[i]) }, func(i int) []int { return strands[i].indexes() })
	p.blame()
}

// blame says what a silence concerns, once all calls have ended: see [sinks.Hearing]. One that somebody called off says
// nothing of the server.
func (p *publication) blame() {
	scope := p.hearing.Silence(p.start)
	if errors.Is(p.ctx.Err(), context.Canceled) {
		scope = sinks.ScopeMessage
	}
	for i, silent := range p.silent {
		if silent {
			p.results[i].Scope = scope
		}
	}
}

// bound is a strand and the queue that it goes to.
type bound struct {
	address string
	queue   queue
	strand  strand
}

func (b bound) indexes() (all []int) {
	for _, c := range b.strand {
		for _, e := range c {
			all = append(all, e.index)
		}
	}
	return all
}

// prepare looks up the queues of a batch and plans the calls. It fills the results of what isn't going to be sent.
func (p *publication) prepare() []bound {
	addresses, indexes := byAddress(p.batch)
	planned := make([][]bound, len(addresses))
	p.parallel(len(addresses), func(i int) {
		planned[i] = p.prepareQueue(addresses[i], indexes[addresses[i]])
	}, func(i int) []int { return indexes[addresses[i]] })
	return slices.Concat(planned...)
}

// byAddress sorts the indexes of a batch by address, keeping the order of both.
func byAddress(batch []sinks.Message) (addresses []string, indexes map[string][]int) {
	indexes = map[string][]int{}
	for i := range batch {
		address := batch[i].Address
		if _, ok := indexes[address]; !ok {
			addresses = append(addresses, address)
		}
		indexes[address] = append(indexes[address], i)
	}
	return addresses, indexes
}

func (p *publication) prepareQueue(address string, indexes []int) []bound {
	all := func(r sinks.Result, silent bool) []bound {
		for _, i := range indexes {
			p.results[i], p.silent[i] = r, silent
		}
		return nil
	}
	if err := p.settings.CheckAddress(address); err != nil {
		return all(rejected.result(err), false)
	}
	q, err := p.queues.find(p.ctx, address, p.take)
	if lookup, ok := errors.AsType[*lookupError](err); ok {
		return all(lookup.result(), lookup.silent)
	} else if err != nil {
		return all(tooLate(err), false)
	}

	limit, fifo := p.limit(q), isFIFO(address)
	entries := make([]*entry, 0, len(indexes))
	for _, i := range indexes {
		e, err := newEntry(i, &p.batch[i], fifo)
		if err == nil && e.size > limit {
			err = fmt.Errorf("sqs: too large: %d bytes with its attributes, the limit of %s is %d", e.size, address, limit)
		}
		if err != nil {
			p.results[i] = rejected.result(err)
			continue
		}
		entries = append(entries, e)
	}
	var planned []bound
	for _, st := range plan(entries, fifo, limit) {
		planned = append(planned, bound{address, q, st})
	}
	return planned
}

// limit is the size of the largest message, and of the largest call, for a queue.
func (s *sink) limit(q queue) int {
	if q.limit > 0 {
		return min(q.limit, s.settings.MaxBytes)
	}
	return s.settings.MaxBytes
}

// take waits for a slot, and gives it back when it came too late to be of use.
func (p *publication) take() (give func(), err error) {
	select {
	case p.slots <- struct{}{}:
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
	give = func() { <-p.slots }
	if err := sinks.InTime(p.ctx, p.start); err != nil {
		give()
		return nil, err
	}
	return give, nil
}

// tooLate is the result of what was never handed to SQS.
func tooLate(cause error) sinks.Result {
	return sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("sqs: not sent: %w", cause)}
}

// parallel calls f for 0 to n-1, as many at once as there are slots, and returns when all have returned. A panic, which
// would end the process here, leaves the messages that f was about unknown where they had no result.
func (p *publication) parallel(n int, f func(int), about func(int) []int) {
	survive := func(i int) {
		defer func() {
			if cause := recover(); cause != nil {
				p.log.Error("publish panicked", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
				p.doubt(about(i))
			}
		}()
		f(i)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, p.settings.Parallel) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				survive(i)
			}
		})
	}
	all.Wait()
}

// doubt is for messages that a panic left without a result. Those that surely weren't sent are unknown too: each is tried
// alone then, and the one that can't be handled runs out of attempts instead of stopping the others for ever.
func (p *publication) doubt(indexes []int) {
	for _, i := range indexes {
		if r := &p.results[i]; r.Outcome == sinks.Unknown && r.Err == nil {
			r.Err = errors.New("sqs: publish panicked, see the log")
		}
	}
}
