package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"

	"github.com/jobrelay/relay/sinks"
)

// narrow finds the messages because of which a batch was refused. Nothing of the batch was appended, so the parts may
// be sent again; they stay in order.
func (p *publication) narrow(q *queue, a answer, r ruling, err error) {
	piece := q.first()
	tooLarge := a.code == int16(kafkago.MessageSizeTooLarge) || a.code == int16(kafkago.RecordListTooLarge)
	limit := 0
	if tooLarge {
		limit = p.cluster.maxMessageBytes(p.ctx, q)
		err = fmt.Errorf("%w: %s", err, sizes(q.size, limit))
	}
	if rest := p.named(piece, a.records, r, err); len(rest) < len(piece) {
		q.replace(rest)
		for _, i := range piece {
			if !slices.Contains(rest, i) {
				p.holdBack(q, i)
			}
		}
		return
	}
	if len(piece) == 1 {
		p.refuse(q, sinks.Result{Outcome: r.outcome, Err: err})
		return
	}
	if limit > 0 {
		if parts := p.cut(piece, min(limit, pieceBytes)); len(parts) > 1 {
			q.replace(parts...)
			return
		}
	}
	half := len(piece) / 2
	q.replace(piece[:half], piece[half:])
}

func sizes(size, limit int) string {
	if limit == 0 {
		return fmt.Sprintf("%d bytes as a record batch, over the topic's max.message.bytes (which the user may not read)", size)
	}
	return fmt.Sprintf("%d bytes as a record batch, the topic's max.message.bytes is %d", size, limit)
}

// named gives the messages that the broker named their result and returns the others.
func (p *publication) named(piece []int, named []recordError, r ruling, err error) []int {
	rest := slices.Clone(piece)
	for _, n := range named {
		if n.index < 0 || n.index >= len(piece) || rest[n.index] < 0 {
			continue
		}
		why := err
		if n.message != "" {
			why = fmt.Errorf("%w: %.300s", err, n.message)
		}
		p.results[piece[n.index]] = sinks.Result{Outcome: r.outcome, Err: why}
		rest[n.index] = -1
	}
	return slices.DeleteFunc(rest, func(i int) bool { return i < 0 })
}

// replace puts parts in the place of the first piece.
func (q *queue) replace(parts ...[]int) {
	parts = slices.DeleteFunc(parts, func(part []int) bool { return len(part) == 0 })
	q.pieces = slices.Concat(parts, q.pieces[1:])
}

// limitTTL is how long batches stay small before a limit is put to the test again: it may have been raised.
const limitTTL = 10 * time.Minute

// limit remembers a topic's max.message.bytes once a batch was too large for it.
type limit struct {
	mu    sync.Mutex
	bytes int // 0: not known
	asked time.Time
}

func (l *limit) get() (bytes int, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, time.Since(l.asked) < metadataTTL
}

func (l *limit) set(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.asked = bytes, time.Now()
}

// piece is how large a piece of the topic may be.
func (l *limit) piece() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes == 0 || time.Since(l.asked) > limitTTL {
		return pieceBytes
	}
	return min(l.bytes, pieceBytes)
}

// maxMessageBytes asks for a topic's limit, 0 when it can't be had.
func (c *cluster) maxMessageBytes(ctx context.Context, q *queue) int {
	l := &q.target.topic.limit
	if bytes, fresh := l.get(); fresh {
		return bytes
	}
	values, err := c.config(ctx, q.target.topic.name, "max.message.bytes")
	if err != nil {
		return 0
	}
	bytes, _ := strconv.Atoi(values["max.message.bytes"])
	l.set(bytes)
	return bytes
}

// config returns settings of a topic. Without the permission to see them it is empty.
func (c *cluster) config(ctx context.Context, name string, settings ...string) (map[string]string, error) {
	const topicResource = 2
	req := &describeconfigs.Request{Resources: []describeconfigs.RequestResource{
		{ResourceType: topicResource, ResourceName: name, ConfigNames: settings},
	}}
	var failure error
	for _, address := range c.candidates() {
		reply, err := c.call(ctx, address, req)
		if err != nil {
			if failure = joined(failure, err); ctx.Err() != nil {
				break
			}
			continue
		}
		values := map[string]string{}
		for _, r := range reply.(*describeconfigs.Response).Resources {
			for _, e := range r.ConfigEntries {
				values[e.ConfigName] = e.ConfigValue
			}
		}
		return values, nil
	}
	return nil, failure
}
