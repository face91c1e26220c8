package e2e

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/jobrelay/relay/internal/services"
)

// line is the network between a relay and a broker.
type line struct {
	t     *testing.T
	addr  string
	proxy *toxiproxy.Proxy
}

func newLine(t *testing.T, listen, upstream string) *line {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "line", listen, upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &line{t: t, addr: p.Listen, proxy: p}
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

// toxic adds a fault in one direction: "upstream" is towards the broker.
func (l *line) toxic(json string) {
	l.t.Helper()
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		l.t.Fatal(err)
	}
}

// heal takes all faults away.
func (l *line) heal() {
	l.t.Helper()
	l.proxy.Toxics.ResetToxics(l.t.Context())
	if err := l.proxy.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		l.t.Fatal(err)
	}
}

// delay slows every reply.
func (l *line) delay(d time.Duration) {
	l.proxy.Toxics.ResetToxics(l.t.Context())
	l.toxic(`{"name": "slow", "type": "latency", "stream": "downstream", "attributes": {"latency": ` + strconv.FormatInt(d.Milliseconds(), 10) + `}}`)
}

// swallow takes everything and lets nothing through, either way.
func (l *line) swallow() {
	l.toxic(`{"name": "up", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`)
	l.toxic(`{"name": "down", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`)
}

// cut ends every connection and refuses new ones.
func (l *line) cut() { l.proxy.Stop() }
