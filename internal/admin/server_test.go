package admin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subject is what the server shows in a test.
type subject struct {
	health  relay.Health
	figures []claim.KindFigures
	age     time.Duration
	unread  bool
}

func healthy() relay.Health {
	return relay.Health{
		Database: "ok", Listener: "ok",
		Sinks:        map[string]relay.State{"kafka": {Up: true}, "sqs": {Up: true}},
		Destinations: map[string]relay.State{"kafka:orders": {Up: true}, "sqs:mail": {Up: true}},
	}
}

func (s subject) server() *Server {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "relay_build_info"}))
	return New(Config{
		Health: func() relay.Health { return s.health },
		Status: func() (ops.Status, time.Duration, bool) {
			f := claim.Figures{At: time.Now(), Kinds: s.figures, OldestSnapshot: &claim.Snapshot{PID: 7, AgeSeconds: 90, State: "idle in transaction", Application: "report"}}
			return ops.NewStatus("shop", f, ops.Routes{Serves: func(kind string) bool { return kind != "alien" }}), s.age, !s.unread
		},
		Gatherer: reg,
		Version:  "v1.2.3",
	})
}

func (s subject) get(t *testing.T, method, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	s.server().http.Handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	down := relay.State{Reason: "connection refused", Since: time.Now()}
	for name, test := range map[string]struct {
		change func(*relay.Health)
		code   int
		status string
		says   string
	}{
		"ok":               {func(*relay.Health) {}, 200, "ok", "kafka:orders"},
		"sink down":        {func(h *relay.Health) { h.Sinks["kafka"] = down }, 200, "degraded", "connection refused"},
		"destination down": {func(h *relay.Health) { h.Destinations["sqs:mail"] = down }, 200, "degraded", "connection refused"},
		"no LISTEN":        {func(h *relay.Health) { h.Listener = "away" }, 200, "ok", "away"},
		"database away":    {func(h *relay.Health) { h.Database = "dial tcp: refused" }, 503, "unavailable", "dial tcp: refused"},
		"both away":        {func(h *relay.Health) { h.Database = "no"; h.Sinks["kafka"] = down }, 503, "unavailable", "connection refused"},
		"draining":         {func(h *relay.Health) { h.Draining = true }, 503, "unavailable", `"draining": true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := subject{health: healthy()}
			test.change(&s.health)
			code, body, _ := s.get(t, "GET", "/readyz")
			var got struct{ Status string }
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if code != test.code || got.Status != test.status || !strings.Contains(body, test.says) {
				t.Errorf("%d %s, want %d %s and %q", code, body, test.code, test.status, test.says)
			}
			if code, _, _ := s.get(t, "GET", "/healthz"); code != 200 {
				t.Errorf("healthz: %d", code)
			}
		})
	}
}

func TestOnlyReads(t *testing.T) {
	t.Parallel()
	s := subject{health: healthy()}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/api/status", "/nowhere"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if code, _, h := s.get(t, method, path); code != 405 || h.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d", method, path, code)
			}
		}
	}
	for path, want := range map[string]int{"/": 200, "/metrics": 200, "/api/status": 200, "/style.css": 200, "/nowhere": 404, "/api/": 404} {
		if code, body, _ := s.get(t, "GET", path); code != want {
			t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
}

func TestPageShowsKindsAndStates(t *testing.T) {
	t.Parallel()
	s := subject{health: healthy(), figures: []claim.KindFigures{
		{Kind: "order.created", Ready: 1234567, Due: 1200, Running: 3, Dead: 4, OldestDueSeconds: 200},
		{Kind: "alien", Ready: 5, Due: 5, OldestDueSeconds: 9000},
		{Kind: `<script>alert("x")</script>`},
	}}
	s.health.Sinks["kafka"] = relay.State{Reason: "refused <b>", Since: time.Now()}
	code, page, header := s.get(t, "GET", "/")
	if code != 200 || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d, %v", code, header)
	}
	for _, want := range []string{"<html", "degraded", "order.created", "1,234,567", "3 min 20 s", "kafka:orders", "refused &lt;b&gt;",
		"relay v1.2.3", "idle in transaction", "report", `<span class="quiet">no</span>`, "relay dead list"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "2 h 30 min</span><small>") {
		t.Error("the page holds a script, or a lag of somebody else's kind")
	}
}

func TestPageOfManyKinds(t *testing.T) {
	t.Parallel()
	s := subject{health: healthy()}
	for i := range 2 * maxRows {
		s.figures = append(s.figures, claim.KindFigures{Kind: "k" + strings.Repeat("x", i%7) + time.Duration(i).String()})
	}
	s.figures = append(s.figures, claim.KindFigures{Kind: "z.dead", Dead: 1})
	_, page, _ := s.get(t, "GET", "/")
	if !strings.Contains(page, "z.dead") || !strings.Contains(page, "and 101 more kinds") {
		t.Error("the dead job's kind doesn't come first, or the rest isn't counted")
	}
}

func TestPageBeforeAndAfterTheFigures(t *testing.T) {
	t.Parallel()
	if _, page, _ := (subject{health: healthy(), unread: true}).get(t, "GET", "/"); !strings.Contains(page, "No figures have been read yet") {
		t.Error("no word of figures that are not there yet")
	}
	s := subject{health: healthy(), age: time.Minute}
	if _, page, _ := s.get(t, "GET", "/"); !strings.Contains(page, "1 min 0 s old") {
		t.Error("no word of old figures")
	}
	if _, body, _ := s.get(t, "GET", "/api/status"); !strings.Contains(body, `"figures_age_seconds": 60`) {
		t.Errorf("no age in %s", body)
	}
}

func TestServeAndClose(t *testing.T) {
	t.Parallel()
	s := subject{health: healthy()}.server()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(body), "relay_build_info") {
		t.Errorf("metrics: %s", body)
	}
	// A client that never finishes its request can't hold the end up.
	slow, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	_, _ = slow.Write([]byte("GET /healthz HTTP/1.1\r\n"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = s.Close(ctx)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := count(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0 s", 0.44: "0.4 s", 12.7: "12 s", 200: "3 min 20 s", 18_720: "5 h 12 min", 273_600: "3 d 4 h", -1: "0 s"} {
		if got := span(s); got != want {
			t.Errorf("%v is %q, want %q", s, got, want)
		}
	}
}
