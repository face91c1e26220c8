package demo

import (
	"sync"
	"time"
)

// Ledger notes what became of every job: that its transaction committed or rolled back, and each time it was
// delivered. It may be used by many goroutines.
type Ledger struct {
	mu         sync.Mutex
	jobs       map[int64]*entry
	committed  int
	rolledBack int
	delivered  int // committed ones that were delivered at least once
	lastCommit time.Time
}

type entry struct {
	committed time.Time // when its commit was asked for; zero: not committed, or not known yet
	delivered time.Time // the first time
	copies    int
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{jobs: map[int64]*entry{}} }

func (l *Ledger) entry(id int64) *entry {
	e := l.jobs[id]
	if e == nil {
		e = &entry{}
		l.jobs[id] = e
	}
	return e
}

// Committed notes a transaction that has committed; asked is when its commit was asked for. Its jobs may have been
// delivered before the answer came.
func (l *Ledger) Committed(ids []int64, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		e := l.entry(id)
		e.committed = asked
		if e.copies > 0 {
			l.delivered++
		}
	}
	l.committed += len(ids)
	l.lastCommit = time.Now()
}

// RolledBack notes a transaction that was rolled back. Its jobs must never be delivered.
func (l *Ledger) RolledBack(ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rolledBack += len(ids)
}

// Delivered notes that a job has arrived.
func (l *Ledger) Delivered(id int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(id)
	e.copies++
	if e.copies > 1 {
		return
	}
	e.delivered = at
	if !e.committed.IsZero() {
		l.delivered++
	}
}

// Progress is how far it is.
type Progress struct{ Committed, RolledBack, Delivered int }

// Progress returns the counts so far.
func (l *Ledger) Progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Progress{l.committed, l.rolledBack, l.delivered}
}

// LastCommit is when the last transaction committed; zero before the first.
func (l *Ledger) LastCommit() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastCommit
}
