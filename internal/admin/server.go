package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config configures a [Server]. Health, Status and Gatherer are required; none of them may block.
type Config struct {
	Health   func() relay.Health
	Status   func() (status ops.Status, age time.Duration, ok bool) // ok is false before the first reading
	Gatherer prometheus.Gatherer
	Version  string       // shown on the page
	Log      *slog.Logger // default: discard
}

// Server is the admin server.
type Server struct {
	c    Config
	http *http.Server
}

// Limits of the server: it answers small questions to few clients and must not be a burden to the relay.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 15 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 16 << 10
	maxScrapes    = 4
)

// New makes the server; Serve starts it.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{c: c}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers on the listener, which it closes, until Close.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends the server: answers under way are finished until ctx ends, then cut.
func (s *Server) Close(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.Handle("/metrics", promhttp.HandlerFor(s.c.Gatherer, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one broken metric must not hide the others
		MaxRequestsInFlight: maxScrapes,
		Timeout:             readTimeout,
	}))
	mux.HandleFunc("/api/status", s.apiStatus)
	mux.HandleFunc("/style.css", style)
	mux.HandleFunc("/{$}", s.page)
	return readOnly(mux)
}

// readOnly refuses every method that could ask for a change, and keeps browsers from doing more with an answer than
// show it.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this server only reads: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
