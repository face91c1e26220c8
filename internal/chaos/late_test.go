package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/history"
)

const (
	askEvery = 250 * time.Millisecond
	late     = publishTimeout / 2 // an answer so late may be no answer to others
)

// askServers asks every server something small over a line without faults, until it is stopped, and notes as a fault when an
// answer takes so long: a machine that others keep busy is one, and the only one that this run doesn't make.
func (w *world) askServers() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	ask := func(on string, question func(context.Context) error) {
		all.Go(func() {
			repeat(ctx, askEvery, func(ctx context.Context) (bool, error) {
				asked := time.Now()
				err := question(ctx)
				if now := time.Now(); err == nil && now.Sub(asked) > late {
					w.mu.Lock()
					w.late = append(w.late, history.Fault{Name: on + " answered late by itself", On: on, From: asked, To: now})
					w.mu.Unlock()
				}
				return false, err
			})
		})
	}
	kafka := w.kafka(kgo.RequestRetries(0))
	queue, queues := places("sqs")[0], w.sqs(func(o *sqs.Options) { o.RetryMaxAttempts = 1 })
	pool := w.pool("asking", 1)
	ask("kafka", kafka.Ping)
	ask("sqs", func(ctx context.Context) error {
		_, err := queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
		return err
	})
	ask("rabbitmq", func(context.Context) error {
		conn, err := amqp.DialConfig(w.rabbit.URL, amqp.Config{Dial: amqp.DefaultDial(patience)})
		if err != nil {
			return err
		}
		return conn.Close()
	})
	ask(history.OnDatabase, pool.Ping)
	return func() { cancel(); all.Wait(); kafka.Close() }
}
