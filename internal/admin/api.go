package admin

import (
	"encoding/json"
	"net/http"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
)

// Words of "status" in /readyz.
const (
	statusOK          = "ok"
	statusDegraded    = "degraded"    // ready, but a sink or destination is down
	statusUnavailable = "unavailable" // 503: the database is unusable, or the relay drains
)

// readiness is what /readyz says.
type readiness struct {
	Status string `json:"status"`
	relay.Health
}

func (s *Server) readiness() readiness {
	h := s.c.Health()
	r := readiness{Status: statusOK, Health: h}
	if h.Degraded() {
		r.Status = statusDegraded
	}
	if !h.Ready() {
		r.Status = statusUnavailable
	}
	return r
}

// healthz says that the process answers; it depends on nothing else, so that an outage restarts nobody.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	r := s.readiness()
	code := http.StatusOK
	if r.Status == statusUnavailable {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, r)
}

// overview is what /api/status says and the page shows.
type overview struct {
	Version    string      `json:"version"`
	Readiness  readiness   `json:"readiness"`
	Figures    *ops.Status `json:"figures"` // null before the first reading
	AgeSeconds float64     `json:"figures_age_seconds"`
}

func (s *Server) overview() overview {
	o := overview{Version: s.c.Version, Readiness: s.readiness()}
	figures, age, ok := s.c.Status()
	o.AgeSeconds = age.Seconds()
	if ok {
		o.Figures = &figures
	}
	return o
}

func (s *Server) apiStatus(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.overview())
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client has gone: there is nobody to tell
}
