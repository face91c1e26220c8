package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/jobrelay/relay/sinks"
)

const (
	// freshFor bounds how long a raised or lowered limit of a queue goes unnoticed.
	freshFor = time.Minute
	// attributesTimeout keeps the question about a queue's limit, which may stay open, from using up a call's time.
	attributesTimeout = 5 * time.Second
)

// queue is what the sink knows of one.
type queue struct {
	url   string
	limit int // bytes of a message, and of a call; 0 when it may not be read
	asked time.Time
}

// queues remembers the queues that exist, by address. One that doesn't is asked for again each time.
type queues struct {
	client *client
	log    *slog.Logger

	mu     sync.Mutex
	known  map[string]queue
	asking map[string]*question
}

// question is one that is under way: whoever needs the same queue waits for its answer.
type question struct {
	done chan struct{}
	q    queue
	err  error
}

// find returns a queue, from memory unless that is too old, else by asking, when take has given it a turn. An error that
// is no [lookupError] means that there was no time to ask.
func (qs *queues) find(ctx context.Context, address string, take func() (func(), error)) (queue, error) {
	for {
		qs.mu.Lock()
		q, known := qs.known[address]
		if known && time.Since(q.asked) < freshFor {
			qs.mu.Unlock()
			return q, nil
		}
		same, asked := qs.asking[address]
		if !asked {
			same = &question{done: make(chan struct{}), err: errUnasked}
			qs.asking[address] = same
			qs.mu.Unlock()
			qs.lead(ctx, address, q, same, take)
			return same.q, same.err
		}
		qs.mu.Unlock()
		select {
		case <-same.done:
		case <-ctx.Done():
			return queue{}, context.Cause(ctx)
		}
		if answered, _ := errors.AsType[*lookupError](same.err); same.err == nil || answered != nil && !answered.silent {
			return same.q, same.err
		}
		if ctx.Err() != nil {
			return queue{}, context.Cause(ctx)
		}
	}
}

// errUnasked is what remains of a question whose asker panicked.
var errUnasked = errors.New("sqs: the queue wasn't looked up")

// lead asks for all who wait. What ended without an answer was perhaps only out of time: each of them asks again.
func (qs *queues) lead(ctx context.Context, address string, old queue, same *question, take func() (func(), error)) {
	defer func() {
		qs.mu.Lock()
		delete(qs.asking, address)
		qs.mu.Unlock()
		close(same.done)
	}()
	give, err := take()
	if err != nil {
		same.err = err
		return
	}
	defer give()
	same.q, same.err = qs.ask(ctx, address, old)
}

// ask looks a queue up, by its name unless the URL is known, and remembers it. A limit that can't be read stays as it was:
// the permission isn't needed for sending, and whatever else is wrong shows when something is sent.
func (qs *queues) ask(ctx context.Context, address string, old queue) (queue, error) {
	q, err := qs.locate(ctx, address, old.url)
	if err != nil {
		return q, err
	}
	q.limit, err = qs.readLimit(ctx, address, q.url)
	if gone(err) {
		qs.forget(address)
		return q, err
	}
	if err != nil {
		q.limit = old.limit
		qs.log.Debug("can't read the queue's limit, going by what was known", "address", address, "error", err)
	}
	q.asked = time.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.known[address] = q
	return q, nil
}

// check looks a queue up without a memory. Here everything but the missing permission counts.
func (qs *queues) check(ctx context.Context, address string) error {
	q, err := qs.locate(ctx, address, "")
	if err != nil {
		return err
	}
	if _, err = qs.readLimit(ctx, address, q.url); denied(err) {
		return nil
	}
	return err
}

// locate finds the URL of a queue.
func (qs *queues) locate(ctx context.Context, address, url string) (queue, error) {
	if isURL(address) {
		url = address
	}
	if url != "" {
		return queue{url: url}, nil
	}
	call, a := watched(ctx)
	out, err := qs.client.GetQueueUrl(call, &awssqs.GetQueueUrlInput{QueueName: &address})
	if err != nil {
		return queue{}, newLookupError(ctx, "look up the queue "+address, err, a)
	}
	return queue{url: aws.ToString(out.QueueUrl)}, nil
}

// readLimit reads how large a message of a queue may be; 0 when the server has no such attribute.
func (qs *queues) readLimit(ctx context.Context, address, url string) (int, error) {
	timed, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	call, a := watched(timed)
	out, err := qs.client.GetQueueAttributes(call, &awssqs.GetQueueAttributesInput{
		QueueUrl:       &url,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameMaximumMessageSize},
	})
	if err != nil {
		return 0, newLookupError(timed, "read the limit of "+address, err, a)
	}
	limit, _ := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameMaximumMessageSize)])
	return limit, nil
}

// forget drops a queue, so that the next message asks for it again.
func (qs *queues) forget(address string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.known, address)
}

// lookupError says why a queue can't be used. Nothing was sent to it.
type lookupError struct {
	scope  sinks.Scope
	silent bool // there was no answer that makes sense
	err    error
}

func newLookupError(ctx context.Context, what string, err error, a *attempt) error {
	c, _ := classifyCall(err, a)
	scope := c.scope
	if scope == sinks.ScopeMessage { // a refusal that would be the message's, had there been one
		scope = sinks.ScopeAddress
	}
	return &lookupError{scope, c == unknown, withCause(ctx, describe(what, err, a))}
}

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// result is that of every message for the queue.
func (e *lookupError) result() sinks.Result {
	return sinks.Result{Outcome: sinks.Unavailable, Scope: e.scope, Err: e.err}
}

// withCause adds why a context ended, unless the error says so already.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}
