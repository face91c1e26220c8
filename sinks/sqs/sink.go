package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jobrelay/relay/sinks"
)

type sink struct {
	settings Settings
	client   *client
	queues   *queues
	slots    chan struct{} // one for each call that may be in flight
	hearing  sinks.Hearing
	log      *slog.Logger

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
		queues:   &queues{client: c, log: log, known: map[string]queue{}, asking: map[string]*question{}},
		log:      log,
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
