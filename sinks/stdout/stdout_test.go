package stdout_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
	"github.com/jobrelay/relay/sinks/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, w io.Writer) sinks.Sink {
	t.Helper()
	settings := stdout.Type().Settings().(*stdout.Settings)
	settings.Writer = w
	s, err := settings.Open("stdout", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// page is a writer that can be read while it is written to.
type page struct {
	mu     sync.Mutex
	text   bytes.Buffer
	writes int
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	return p.text.Write(b)
}

func (p *page) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
}

func TestSuite(t *testing.T) {
	var pages sync.Map // by test: a case has one sink that it reads from, the first
	harness := sinktest.Harness{
		Open: func(t *testing.T) sinks.Sink {
			p := &page{}
			pages.LoadOrStore(t.Name(), p)
			return open(t, p)
		},
		Address: func(*testing.T) string { return "" },
		Read: func(t *testing.T, _ string, _ int) []sinktest.Received {
			p, _ := pages.Load(t.Name())
			return received(t, p.(*page).lines())
		},
		Silent: func(t *testing.T) (sinks.Sink, string) {
			r, w, err := os.Pipe() // nobody reads it, and it is full
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = r.Close(), w.Close() })
			fill(t, w)
			return open(t, w), ""
		},
		Away: func(t *testing.T) sinks.Sink {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			t.Cleanup(func() { w.Close() })
			return open(t, w)
		},
		BlindCheck: true,
		Refused:    map[string]func(*sinks.Message){"address": func(m *sinks.Message) { m.Address = "somewhere" }},
	}
	sinktest.Run(t, harness)
}

// fill writes until nothing more goes in.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	for {
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := w.Write(make([]byte, 1<<12)); err != nil {
			break
		}
	}
	_ = w.SetWriteDeadline(time.Time{})
}

func received(t *testing.T, lines []string) []sinktest.Received {
	t.Helper()
	var all []sinktest.Received
	for _, l := range lines {
		if l == "" {
			continue
		}
		var o struct {
			ID, Kind, Time  string
			Key             *string
			Attempt, Replay json.Number
			Headers         map[string]any
			Payload         json.RawMessage
			Body            *string
		}
		d := json.NewDecoder(strings.NewReader(l))
		d.UseNumber()
		if err := d.Decode(&o); err != nil {
			t.Fatalf("line %.200q: %v", l, err)
		}
		r := sinktest.Received{ID: o.ID, Kind: o.Kind, Time: o.Time, Key: o.Key, Attempt: o.Attempt.String(), Replay: o.Replay.String(),
			Headers: o.Headers, Payload: o.Payload}
		for name, v := range o.Headers {
			if n, ok := v.(json.Number); ok {
				o.Headers[name] = number(n)
			}
			if strings.EqualFold(name, "content-type") {
				r.ContentType = v.(string)
			}
		}
		if o.Body != nil {
			r.Payload, _ = base64.StdEncoding.DecodeString(*o.Body)
		}
		all = append(all, r)
	}
	return all
}

func number(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}

func TestLine(t *testing.T) {
	t.Parallel()
	var p page
	key := "a<b>"
	m := sinks.Message{ID: "shop/17", Kind: "order.paid", Key: &key, Attempt: 2, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Headers: []sinks.Header{{Name: "f", Text: "1.50", Value: 1.5}, {Name: "s", Text: "&", Value: "&"}}, Payload: []byte(`{"z": 1.0, "a": "<&>"}`)}
	body := sinks.Message{ID: "shop/18", Kind: "k", Attempt: 1, Time: m.Time, Payload: []byte{0, 0xff}, Opaque: true, Replay: 19}
	broken := sinks.Message{ID: "shop/20", Kind: "k", Attempt: 1, Time: m.Time, Payload: []byte("{\n}")}
	results := make([]sinks.Result, 3)
	open(t, &p).Publish(t.Context(), []sinks.Message{m, body, broken}, results)
	want := []string{
		`{"id":"shop/17","kind":"order.paid","key":"a<b>","attempt":2,"time":"2026-03-04T05:06:07.000000Z","headers":{"f":1.50,"s":"&"},"payload":{"z": 1.0, "a": "<&>"}}`,
		`{"id":"shop/18","kind":"k","key":null,"attempt":1,"time":"2026-03-04T05:06:07.000000Z","replay":19,"headers":{},"body":"AP8="}`,
		`{"id":"shop/20","kind":"k","key":null,"attempt":1,"time":"2026-03-04T05:06:07.000000Z","headers":{},"payload":{ }}`,
	}
	if got := p.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p.writes != 1 {
		t.Errorf("%d writes for a batch, want 1", p.writes)
	}
}

// stopping fails after some bytes, and works again after that.
type stopping struct {
	page
	left int
}

func (s *stopping) Write(b []byte) (int, error) {
	if len(b) <= s.left || s.left < 0 {
		return s.page.Write(b)
	}
	n, _ := s.page.Write(b[:s.left])
	s.left = -1
	return n, errors.New("disk full")
}

func TestWriteStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	m := sinks.Message{ID: "shop/1", Kind: "k", Attempt: 1, Payload: []byte("1")}
	var whole page
	open(t, &whole).Publish(t.Context(), []sinks.Message{m}, make([]sinks.Result, 1))
	size := len(whole.lines()[0]) + 1

	w := &stopping{left: size + size/2}
	s := open(t, w)
	results := make([]sinks.Result, 3)
	s.Publish(t.Context(), []sinks.Message{m, m, m}, results)
	for i, want := range []sinks.Outcome{sinks.Accepted, sinks.Unknown, sinks.Unavailable} {
		if results[i].Outcome != want {
			t.Errorf("result %d: got %v (%v), want %v", i, results[i].Outcome, results[i].Err, want)
		}
	}
	results = make([]sinks.Result, 1)
	s.Publish(t.Context(), []sinks.Message{m}, results)
	lines := w.lines()
	if results[0].Outcome != sinks.Accepted || len(lines) != 3 || lines[2] != lines[0] {
		t.Errorf("after a torn line the next one should begin on a line of its own, got %v and\n%s", results[0].Outcome, strings.Join(lines, "\n"))
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	s := open(t, &page{})
	if err := s.Check(t.Context(), ""); err != nil {
		t.Errorf("Check: %v", err)
	}
	if s.Check(t.Context(), "somewhere") == nil {
		t.Errorf("an address should be refused")
	}
	_ = s.Close(context.Background())
	if s.Check(t.Context(), "") == nil {
		t.Errorf("Check after Close: got nil, want an error")
	}
}

func BenchmarkPublish(b *testing.B) {
	sinktest.Benchmark(b, func(b *testing.B) (sinks.Sink, string) { return open(b, io.Discard), "" })
}
