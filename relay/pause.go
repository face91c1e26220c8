package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// Bounds of a pause, of the probes of one sink, and of which places are remembered.
const (
	pauseMin = 250 * time.Millisecond
	pauseMax = 30 * time.Second
	// sinkPauseMax is the longest between two probes of a whole sink that fail: a probe is one small question, and all its
	// jobs wait for the answer. Where probes pass and messages fail it is pauseMax, as each try may cost a job an attempt.
	sinkPauseMax = 5 * time.Second
	probeTimeout = 10 * time.Second
	probesAtOnce = 8
	maxPlaces    = 10_000
	// forgetAfter is far longer than a job waits for a paused address, so none is waiting for one that nothing has met
	// for so long.
	forgetAfter = 10 * time.Minute
)

// place is what can be away: a whole sink (address ""), or one expanded address of it.
type place struct{ sink, address string }

// around lists the places that a message goes through, the widest first: the sink, and the wider place and the address where
// there are any.
func around(sink, parent, address string) []place {
	out := append(make([]place, 0, 3), place{sink, ""})
	for _, at := range []string{parent, address} {
		if at != "" {
			out = append(out, place{sink, at})
		}
	}
	return out
}

// pauses knows which places are away. A place that failed pauses, is probed when its pause ends, and comes back when
// the probe succeeds. After a pause that began without a word from the broker one lone job goes first (a trial): a
// probe can pass while publishing can't. The length of the pauses starts over only when something is accepted. An address
// that only jobs know is forgotten when none has met it for some time: the job that knew it may be gone.
type pauses struct {
	check   func(ctx context.Context, p place) error
	resumed func(p place) // called without the lock, after a place came back

	log     *slog.Logger
	lasting map[place]bool // addresses that routes name, never forgotten

	known  atomic.Int64 // len(places), so that healthy traffic takes no lock
	mu     sync.Mutex
	places map[place]*outage
	probes map[string]int // under way, by sink: one whose checks hang keeps no other from being probed
}

// outage is the state of a place that failed and hasn't accepted anything since.
type outage struct {
	state   outageState
	delay   time.Duration
	since   time.Time
	until   time.Time
	met     time.Time // when a job last came to it
	unknown bool      // it began, or went on, without a word
	reason  string
	names   map[string]bool // destinations, as routes write them, whose jobs met it
	within  []place         // the wider places around it
}

type outageState uint8

const (
	paused  outageState = iota // until its time
	probing                    // a probe is under way
	trial                      // the probe passed; one job may try
	trying                     // that job is under way
	back                       // open again, but nothing was accepted yet: the next pause is longer
)

func newPauses(log *slog.Logger, check func(context.Context, place) error, resumed func(place)) *pauses {
	return &pauses{log: log, check: check, resumed: resumed, places: map[place]*outage{}, probes: map[string]int{}}
}

// calm: nothing is known against any place.
func (p *pauses) calm() bool { return p.known.Load() == 0 }

// run probes places whose pause has ended, until ctx ends; then it waits for the probes under way.
func (p *pauses) run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	tick := time.NewTicker(pauseMin / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, due := range p.due(time.Now()) {
			probes.Go(func() { p.probe(ctx, due) })
		}
	}
}

// due marks the places to probe now, as many of each sink as may be under way, and forgets those that nobody knows any
// more.
func (p *pauses) due(now time.Time) []place {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []place
	for at, o := range p.places {
		if slices.ContainsFunc(o.within, p.away) {
			o.met = now // jobs don't come as far as here meanwhile
		}
		switch {
		case now.Sub(o.met) > forgetAfter && o.state != probing && p.forgettable(at):
			p.forget(at)
			p.log.Info("an address that was away is forgotten: no job comes to it", "sink", at.sink, "address", at.address, "error", o.reason)
		case o.state == paused && !now.Before(o.until) && p.probes[at.sink] < probesAtOnce:
			o.state = probing
			p.probes[at.sink]++
			out = append(out, at)
		}
	}
	return out
}

// away: nothing may be sent there now, not even one message.
func (p *pauses) away(at place) bool { o := p.places[at]; return o != nil && o.away() }

func (o *outage) away() bool { return o.state == paused || o.state == probing }

func (p *pauses) forgettable(at place) bool { return at.address != "" && !p.lasting[at] }

func (p *pauses) forget(at place) {
	delete(p.places, at)
	p.known.Store(int64(len(p.places)))
}

// makeRoom forgets the address that no job has met for the longest time when there are too many; false when none may go.
func (p *pauses) makeRoom() bool {
	if len(p.places) < maxPlaces {
		return true
	}
	var stalest place
	var since time.Time
	for at, o := range p.places {
		if p.forgettable(at) && (since.IsZero() || o.met.Before(since)) {
			stalest, since = at, o.met
		}
	}
	if since.IsZero() {
		return false
	}
	p.forget(stalest)
	return true
}

func (p *pauses) probe(ctx context.Context, at place) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.probes[at.sink]--
	}()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.check(ctx, at)
	if p.probed(at, err) {
		p.resumed(at)
	}
}

func (p *pauses) probed(at place, err error) (open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.places[at]
	if o == nil || o.state != probing {
		return false
	}
	switch {
	case err != nil:
		o.reason = err.Error()
		o.again(at.longest())
		return false
	case o.unknown:
		o.state = trial
	default:
		o.state = back
	}
	return true
}

// longest is the longest pause between two probes that fail.
func (at place) longest() time.Duration {
	if at.address == "" {
		return sinkPauseMax
	}
	return pauseMax
}

// again pauses for twice as long as last time, within most, with jitter so that processes don't probe in step.
func (o *outage) again(most time.Duration) {
	o.delay = min(max(2*o.delay, pauseMin), most)
	o.state, o.until = paused, time.Now().Add(jitter(o.delay))
}

// fail notes that the last of the places is away, which lies in those before it. Results of messages that were under way
// when it paused change nothing.
func (p *pauses) fail(places []place, name string, outcome sinks.Outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(places) - 1
	at, within := places[last], places[:last]
	o := p.places[at]
	switch {
	case o == nil:
		if !p.makeRoom() {
			return
		}
		o = &outage{since: time.Now(), names: map[string]bool{}, within: within}
		p.places[at] = o
		p.known.Store(int64(len(p.places)))
		o.again(pauseMax)
		p.log.Warn("a destination is away and pauses", "sink", at.sink, "address", at.address, "outcome", outcome.String(), "error", err)
	case o.state == back || o.state == trying || o.state == trial:
		if o.state == back {
			o.since = time.Now()
		}
		o.again(pauseMax)
	}
	o.met = time.Now()
	o.names[name] = true
	o.unknown = o.unknown || outcome == sinks.Unknown
	if err != nil {
		o.reason = err.Error()
	}
}

// accepted ends an outage: the place took a message. While it is paused that was one of the messages under way.
func (p *pauses) accepted(at place) {
	if p.calm() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.places[at]; o != nil && (o.state == back || o.state == trying || o.state == trial) {
		p.forget(at)
		p.log.Info("a destination is back", "sink", at.sink, "address", at.address, "away", time.Since(o.since).Round(time.Millisecond).String())
	}
}

// answered ends a trial with a word about the message alone: the place is there.
func (p *pauses) answered(at place) {
	if p.calm() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.places[at]; o != nil && o.state == trying {
		o.state, o.unknown = back, false
	}
}

// state of a place; back when nothing is known against it.
func (p *pauses) state(at place) outageState {
	if p.calm() {
		return back
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.places[at]; o != nil {
		return o.state
	}
	return back
}

// open: messages may go there, one at least.
func (p *pauses) open(at place) bool {
	s := p.state(at)
	return s == back || s == trial
}

// enter asks to send one message of a destination there. It takes the place's trial if there is one (lone); o says why it
// may not.
func (p *pauses) enter(at place, name string) (o outage, ok, lone bool) {
	if p.calm() {
		return outage{}, true, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.places[at]
	if got != nil {
		got.met = time.Now()
		got.names[name] = true
	}
	switch {
	case got == nil || got.state == back:
		return outage{}, true, false
	case got.state == trial:
		got.state = trying
		return outage{}, true, true
	}
	return *got, false, false
}

// untried gives a trial back that wasn't used.
func (p *pauses) untried(at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.places[at]; o != nil && o.state == trying {
		o.state = trial
	}
}

// each calls f for every place that is away.
func (p *pauses) each(f func(at place, o outage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, o := range p.places {
		if o.away() {
			f(at, *o)
		}
	}
}

// jitter spreads a duration by ±20 %.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
