package stage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Line is the network between a relay and a server. Its faults last until Heal.
type Line struct {
	Addr string // where the relay connects

	t      testing.TB
	proxy  *toxiproxy.Proxy
	toxics int // so far
}

// NewLine listens at an address and passes everything to upstream.
func NewLine(t testing.TB, listen, upstream string) *Line {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "line", listen, upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &Line{t: t, Addr: p.Listen, proxy: p}
}

// Direction is a half of a line.
type Direction string

// Requests go up, replies come down.
const (
	Up   Direction = "upstream"
	Down Direction = "downstream"
)

// toxic adds a fault in one direction.
func (l *Line) toxic(kind string, d Direction, attribute string, value int64) {
	l.t.Helper()
	l.toxics++
	json := fmt.Sprintf(`{"name": "%d", "type": "%s", "stream": "%s", "attributes": {"%s": %d}}`, l.toxics, kind, d, attribute, value)
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		l.t.Fatal(err)
	}
}

// Heal takes all faults away. Connections whose bytes were swallowed end.
func (l *Line) Heal() {
	l.t.Helper()
	l.proxy.Toxics.ResetToxics(l.t.Context())
	if err := l.proxy.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		l.t.Fatal(err)
	}
}

// Delay lets everything in one direction come later.
func (l *Line) Delay(d Direction, by time.Duration) {
	l.t.Helper()
	l.toxic("latency", d, "latency", by.Milliseconds())
}

// Swallow takes everything in one direction and lets nothing through.
func (l *Line) Swallow(d Direction) {
	l.t.Helper()
	l.toxic("timeout", d, "timeout", 0)
}

// CutAfter ends each connection after so many bytes in one direction, as a rule in the middle of something.
func (l *Line) CutAfter(d Direction, bytes int64) {
	l.t.Helper()
	l.toxic("limit_data", d, "bytes", bytes)
}

// Slow lets so many KB a second through in one direction: whoever sends finds that the other side reads slowly.
func (l *Line) Slow(d Direction, rate int64) {
	l.t.Helper()
	l.toxic("bandwidth", d, "rate", rate)
}

// Cut ends every connection and refuses new ones.
func (l *Line) Cut() { l.proxy.Stop() }
