package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// database remembers how the last statements of each source went: a source is what sends statements of one sort again
// and again, so one that fails isn't forgotten because another succeeds. It says in the log when a source begins to
// fail, every minute while it does, and when it succeeds again.
type database struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]*failure // by source
	lastOK  time.Time
}

type failure struct {
	err               error
	since, last, said time.Time
}

// The sources beside the lanes, each of which claims.
const (
	sourceSweep  = "sweep"
	sourceSettle = "settle" // settling and renewing
)

const (
	// silence is how long the database may say nothing: a statement of the sweep is due every second.
	silence = 10 * time.Second
	// sayAgain is how often a failure that lasts is in the log.
	sayAgain = time.Minute
	// settleDoubt is how long a failure to settle counts when nothing is settled after it.
	settleDoubt = 30 * time.Second
)

func newDatabase(log *slog.Logger) *database {
	return &database{log: log, failing: map[string]*failure{}}
}

// report takes the word on a statement. One that the relay itself has cancelled says nothing.
func (d *database) report(source string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	f := d.failing[source]
	if err == nil {
		d.lastOK = now
		if f != nil {
			delete(d.failing, source)
			d.log.Info("the database answers again", "to", source, "failed", now.Sub(f.since).Round(time.Millisecond).String())
		}
		return
	}
	if f == nil {
		f = &failure{since: now}
		d.failing[source] = f
	}
	f.err, f.last = err, now
	if now.Sub(f.said) >= sayAgain {
		f.said = now
		d.log.Warn("the database fails", "to", source, "error", err)
	}
}

// state is "ok", or what fails for the longest time.
func (d *database) state(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var worst *failure
	for source, f := range d.failing {
		if source == sourceSettle && now.Sub(f.last) > settleDoubt {
			continue
		}
		if worst == nil || f.since.Before(worst.since) {
			worst = f
		}
	}
	switch {
	case worst != nil:
		return worst.err.Error()
	case d.lastOK.IsZero():
		return "starting"
	case now.Sub(d.lastOK) > silence:
		return fmt.Sprintf("no answer for %v", now.Sub(d.lastOK).Round(time.Second))
	}
	return "ok"
}
