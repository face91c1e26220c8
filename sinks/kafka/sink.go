package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/jobrelay/relay/sinks"
)

// sink is the Kafka sink. It runs no goroutine of its own.
type sink struct {
	cluster     *cluster
	sequencer   *sequencer
	partitioner partitioner
	acks        int16
	log         *slog.Logger
	encoders    sync.Pool // of *encoder
	warned      sync.Map  // topics

	closing context.Context // ends when the sink closes
	stop    context.CancelCauseFunc

	mu      sync.Mutex
	calls   int // under way
	closed  bool
	drained chan struct{} // closed when the sink is and no call is under way
}

func newSink(c *cluster, p partitioner, codec compress.Codec, acks int16, log *slog.Logger) *sink {
	s := &sink{cluster: c, sequencer: newSequencer(c), partitioner: p, acks: acks, log: log, drained: make(chan struct{})}
	s.encoders.New = func() any { return &encoder{codec: codec} }
	s.closing, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Publish sends a batch: one request per broker, and more only for what doesn't fit or was refused as a whole.
func (s *sink) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	ctx, leave, err := s.enter(ctx)
	defer leave()
	p := &publication{sink: s, ctx: ctx, start: time.Now(), batch: batch, results: results, landed: make([]bool, len(batch))}
	if err != nil {
		p.all(sinks.Result{Outcome: sinks.Unavailable, Err: err})
		return
	}
	p.run()
}

// KeepsOrder promises it: see run.go for what happens within a batch, and sequence.go for attempts that land late.
func (s *sink) KeepsOrder() {}

// enter begins a call: its context also ends when the sink closes. leave ends it, in any case.
func (s *sink) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ctx, func() {}, errClosed
	}
	s.calls++
	inner, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return inner, func() {
		unhook()
		cancel(nil)
		s.left()
	}, nil
}

func (s *sink) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 && s.closed {
		close(s.drained)
	}
}

// Close ends the calls under way and closes the connections.
func (s *sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.calls == 0 {
			close(s.drained)
		}
	}
	s.mu.Unlock()
	s.stop(errClosed)
	defer s.cluster.close()
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
