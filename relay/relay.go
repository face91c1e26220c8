package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/sinks"
	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a [Relay]. Store, Routes, Sinks and Source are required.
type Config struct {
	Store     *claim.Store          // with the batch's bounds and the lease
	Listener  *claim.Listener       // nil: polling only
	Routes    []Route               // in order: the first that matches a kind wins
	Sinks     map[string]sinks.Sink // by name, every one that a route names; the caller closes them after Run
	Addresses map[string]Addresses  // by the name of the sink; none is needed

	Source         string        // first half of the message id
	Workers        int           // per lane; default 4
	PublishTimeout time.Duration // default 20s; less than the Store's lease
	PollMin        time.Duration // default 5ms
	PollMax        time.Duration // default 1s
	RetryBase      time.Duration // default 10s
	RetryMax       time.Duration // default 1h
	Retention      time.Duration // how long done jobs are kept; 0: the Store deletes them as they settle
	RetentionDead  time.Duration // how long dead jobs are kept; 0: for ever
	DrainTimeout   time.Duration // default 25s

	Registerer prometheus.Registerer // default: a registry of its own
	Log        *slog.Logger          // default: discard
}

// Relay relays. Make one with [New], start it with Run, once.
type Relay struct {
	Config
	batch   claim.Options // the Store's
	policy  policy
	router  *Router
	queue   *claim.Queue
	pauses  *pauses
	metrics *metrics
	calls   map[string]*caller // of Publish, by sink
	checks  map[string]*caller // of Check

	database  *database
	listening atomic.Value // string, as in Health
	drain     drain
}

// drain holds the two contexts that outlive the order to stop, and what became of the drain.
type drain struct {
	send     context.Context // publishing: ends early enough to settle
	work     context.Context // settling and extending
	draining atomic.Bool
	gaveUp   atomic.Bool
}

// ErrGaveUp is what Run returns when it could not drain: some jobs in flight were left to their leases.
var ErrGaveUp = errors.New("drain: gave up; jobs in flight come back when their leases end")

// New checks the configuration; it connects to nothing.
func New(c Config) (*Relay, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure the relay: %w", err)
	}
	addresses := map[string]Addresses{}
	for name := range c.Sinks {
		addresses[name] = c.Addresses[name]
	}
	router, problems, _ := NewRouter(c.Routes, addresses)
	if len(problems) > 0 {
		return nil, fmt.Errorf("configure the relay: %w", errors.Join(problems...))
	}
	router.sequence(c.Sinks)
	r := &Relay{Config: c, batch: c.Store.Options(), router: router, policy: policy{c.RetryBase, c.RetryMax}}
	r.database = newDatabase(c.Log)
	r.queue = c.Store.Queue(r.Serves)
	r.queue.ShareOf(router.share)
	r.queue.OrderOf(router.orderOf)
	r.queue.Expect(router.ExactKinds()...)
	r.pauses = newPauses(c.Log, r.check, r.resumed)
	r.pauses.lasting = router.places()
	r.metrics = newMetrics(c.Registerer, slices.Sorted(maps.Keys(c.Sinks)), router.To)
	for _, kind := range router.ExactKinds() {
		r.metrics.kind(kind)
	}
	c.Registerer.MustRegister(newStateCollector(r.Health))
	r.calls, r.checks = map[string]*caller{}, map[string]*caller{}
	for name := range c.Sinks {
		r.calls[name] = &caller{sink: name, what: "publish", most: int64(c.Workers), log: c.Log}
		r.checks[name] = &caller{sink: name, what: "check", most: probesAtOnce, log: c.Log}
	}
	r.listening.Store("off")
	return r, nil
}

func (c *Config) setDefaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.PublishTimeout, 20*time.Second)
	set(&c.PollMin, 5*time.Millisecond)
	set(&c.PollMax, time.Second)
	set(&c.RetryBase, 10*time.Second)
	set(&c.RetryMax, time.Hour)
	set(&c.DrainTimeout, 25*time.Second)
	c.Workers = cmp.Or(c.Workers, 4)
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("a store is needed")
	case c.Source == "":
		return errors.New("a source is needed")
	case len(c.Routes) == 0:
		return errors.New("at least one route is needed")
	case c.Workers < 0:
		return fmt.Errorf("workers: %d is negative", c.Workers)
	case c.PublishTimeout >= c.Store.Options().Lease:
		return fmt.Errorf("publish timeout %v is not less than the lease %v", c.PublishTimeout, c.Store.Options().Lease)
	case c.PollMax < c.PollMin:
		return fmt.Errorf("poll max %v is less than poll min %v", c.PollMax, c.PollMin)
	case c.RetryMax < c.RetryBase:
		return fmt.Errorf("retry max %v is less than retry base %v", c.RetryMax, c.RetryBase)
	}
	return nil
}

// Serves says whether a route matches the kind.
func (r *Relay) Serves(kind string) bool { return r.router.Serves(kind) }

// Run relays until ctx ends, then drains: it claims nothing more, ends what is in flight and releases the rest within
// DrainTimeout. abandon, when it ends, cuts the drain short. It returns nil after a clean drain and [ErrGaveUp]
// otherwise. While the database is away it waits and says so in Health.
func (r *Relay) Run(ctx, abandon context.Context) error {
	send, stopSending := context.WithCancelCause(context.WithoutCancel(ctx))
	work, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopSending(nil)
	defer stopWorking(nil)
	r.drain.send, r.drain.work = send, work

	var background, workers sync.WaitGroup
	background.Go(func() { r.pauses.run(ctx) })
	background.Go(func() { r.sweep(ctx) })
	background.Go(func() { r.clean(ctx) })
	background.Go(func() { r.listen(ctx) })
	for _, l := range r.router.lanes {
		for range r.Workers {
			workers.Go(func() { r.work(ctx, l) })
		}
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); background.Wait(); close(ended) }()

	<-ctx.Done()
	r.drain.draining.Store(true)
	r.Log.Info("draining", "timeout", r.DrainTimeout.String())
	r.await(abandon, ended, stopSending, stopWorking)
	<-ended
	if r.drain.gaveUp.Load() {
		return ErrGaveUp
	}
	return nil
}

// await lets the workers end by themselves. Publishing is cut a little before the drain's end, so that what is known
// by then is still settled.
func (r *Relay) await(abandon context.Context, ended <-chan struct{}, stopSending, stopWorking context.CancelCauseFunc) {
	cut := time.After(r.DrainTimeout - min(r.DrainTimeout/5, 3*time.Second))
	end := time.After(r.DrainTimeout)
	for {
		select {
		case <-ended:
			return
		case <-cut:
			r.drain.gaveUp.Store(true)
			stopSending(errors.New("drain timeout"))
		case <-end:
			stopWorking(errors.New("drain timeout"))
			return
		case <-abandon.Done():
			r.drain.gaveUp.Store(true)
			stopSending(context.Cause(abandon))
			stopWorking(context.Cause(abandon))
			return
		}
	}
}
