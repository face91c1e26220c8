package e2e

import (
	"net/url"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
)

// line is the network between a relay and a broker.
type line struct {
	*stage.Line
	addr string
}

func newLine(t *testing.T, listen, upstream string) *line {
	t.Helper()
	l := stage.NewLine(t, listen, upstream)
	return &line{l, l.Addr}
}

func hostOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func rabbitLine(t *testing.T) *line {
	return newLine(t, "127.0.0.1:0", hostOf(t, services.RabbitMQ(t)))
}
func sqsLine(t *testing.T) *line { return newLine(t, "127.0.0.1:0", hostOf(t, services.SQS(t))) }
func kafkaLine(t *testing.T) *line {
	listener, advertised := services.KafkaProxied(t)
	return newLine(t, advertised, listener)
}

// heal takes all faults away.
func (l *line) heal() { l.Heal() }

// delay slows every reply.
func (l *line) delay(d time.Duration) {
	l.Heal()
	l.Delay(stage.Down, d)
}

// swallow takes everything and lets nothing through, either way.
func (l *line) swallow() {
	l.Swallow(stage.Up)
	l.Swallow(stage.Down)
}

// cut ends every connection and refuses new ones.
func (l *line) cut() { l.Cut() }
