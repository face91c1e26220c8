package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/internal/admin"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/internal/version"
	"github.com/jobrelay/relay/relay"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// stage is how far the process has come, for the admin server.
type stage struct {
	reason atomic.Pointer[string] // what the start waits for
	relay  atomic.Pointer[relay.Relay]
	stats  atomic.Pointer[ops.Stats]
}

func (s *stage) waiting(reason string) { s.reason.Store(&reason) }

func (s *stage) running(r *relay.Relay, stats *ops.Stats) {
	s.stats.Store(stats)
	s.relay.Store(r)
}

func (s *stage) health() relay.Health {
	if r := s.relay.Load(); r != nil {
		return r.Health()
	}
	h := relay.Health{Database: "starting", Listener: "starting", Sinks: map[string]relay.State{}, Destinations: map[string]relay.State{}}
	if reason := s.reason.Load(); reason != nil {
		h.Database = *reason
	}
	return h
}

func (s *stage) status() (ops.Status, time.Duration, bool) {
	if stats := s.stats.Load(); stats != nil {
		return stats.Status()
	}
	return ops.Status{}, 0, false
}

// newRegistry holds what every process shows; the engine and the figures register themselves.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := version.Get()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "relay_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": info.Version, "revision": info.Revision, "goversion": info.Go},
	})
	build.Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// serveAdmin starts the admin server; close ends it.
func (v *service) serveAdmin() (closeAdmin func(), err error) {
	if v.AdminAddr == "" {
		return func() {}, nil
	}
	ln, err := listenAdmin(v.AdminAddr)
	if err != nil {
		return nil, err
	}
	v.log.Info("admin server listens", "address", ln.Addr().String())
	return v.serve(ln), nil
}

func (v *service) serve(ln net.Listener) (closeAdmin func()) {
	server := admin.New(admin.Config{
		Health: v.stage.health, Status: v.stage.status, Gatherer: v.registry, Version: version.Get().Version, Log: v.log,
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(ln); err != nil {
			v.log.Error("the admin server failed", "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Close(ctx)
		<-ended
	}
}
