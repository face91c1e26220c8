package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jobrelay/relay/sinks"
)

type sink struct {
	settings Settings
	client   *client
	queues   *queues
	slots    chan struct{} // one for each call that may be in flight

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup // Publish and Check under way
	life   context.Context
	end    context.CancelCauseFunc
}

var errClosed = errors.New("the sink is closed")

func newSink(settings Settings, c *client, log *slog.Logger) *sink {
	s := &sink{
		settings: settings,
		client:   c,
		queues:   &queues{client: c, log: log, known: map[string]queue{}},
		slots:    make(chan struct{}, settings.Parallel),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// enter counts a user of the sink and returns a context that Close ends as well.
func (s *sink) enter(ctx context.Context) (inside context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.users.Add(1)
	inside, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(errClosed) })
	return inside, func() {
		stop()
		cancel(nil)
		s.users.Done()
	}, nil
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
	strands := s.prepare(ctx, batch, results)
	s.parallel(len(strands), func(i int) { s.run(ctx, strands[i], results) })
}

// bound is a strand and the queue that it goes to.
type bound struct {
	address string
	queue   queue
	strand  strand
}

// prepare looks up the queues of a batch and plans the calls. It fills the results of what isn't going to be sent.
func (s *sink) prepare(ctx context.Context, batch []sinks.Message, results []sinks.Result) []bound {
	addresses, indexes := byAddress(batch)
	planned := make([][]bound, len(addresses))
	s.parallel(len(addresses), func(i int) {
		planned[i] = s.prepareQueue(ctx, addresses[i], indexes[addresses[i]], batch, results)
	})
	var all []bound
	for _, p := range planned {
		all = append(all, p...)
	}
	return all
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

func (s *sink) prepareQueue(ctx context.Context, address string, indexes []int, batch []sinks.Message, results []sinks.Result) []bound {
	all := func(r sinks.Result) []bound {
		for _, i := range indexes {
			results[i] = r
		}
		return nil
	}
	if err := s.settings.CheckAddress(address); err != nil {
		return all(rejected.result(err))
	}
	q, err := s.lookUp(ctx, address)
	if lookup := (*lookupError)(nil); errors.As(err, &lookup) {
		return all(lookup.result())
	} else if err != nil {
		return all(tooLate(err))
	}

	limit, fifo := s.limit(q), isFIFO(address)
	entries := make([]*entry, 0, len(indexes))
	for _, i := range indexes {
		e, err := newEntry(i, &batch[i], fifo)
		if err == nil && e.size > limit {
			err = fmt.Errorf("sqs: too large: %d bytes with its attributes, the limit of %s is %d", e.size, address, limit)
		}
		if err != nil {
			results[i] = rejected.result(err)
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

// lookUp finds a queue within one of the slots.
func (s *sink) lookUp(ctx context.Context, address string) (queue, error) {
	if err := s.take(ctx); err != nil {
		return queue{}, err
	}
	defer s.give()
	return s.queues.find(ctx, address)
}

// limit is the size of the largest message, and of the largest call, for a queue.
func (s *sink) limit(q queue) int {
	if q.limit > 0 {
		return min(q.limit, s.settings.MaxBytes)
	}
	return s.settings.MaxBytes
}

// take waits for a slot.
func (s *sink) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *sink) give() { <-s.slots }

// tooLate is the result of what was never handed to SQS.
func tooLate(cause error) sinks.Result {
	return sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("sqs: not sent, its time was over: %w", cause)}
}

// parallel calls f for 0 to n-1, as many at once as there are slots, and returns when all have returned.
func (s *sink) parallel(n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, s.settings.Parallel) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// Close waits for callers, whose calls it ends, and closes the connections.
func (s *sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	defer s.client.pool.CloseIdleConnections()

	gone := make(chan struct{})
	go func() {
		s.users.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sqs: close: calls are still under way: %w", context.Cause(ctx))
	}
}
