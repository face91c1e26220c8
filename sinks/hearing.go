package sinks

import (
	"sync"
	"time"
)

// Hearing remembers when a broker last said something of a message, in whichever call, to tell how far a silence
// reaches. The zero value is ready.
type Hearing struct {
	mu   sync.Mutex
	last time.Time
}

// Heard notes an answer: accepted or refused, but in the broker's words.
func (h *Hearing) Heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// Silence is the scope of a message that had no word in a call that began at start: its address, when the broker answered
// for other messages since then, else the sink. One queue that hangs would stop all the others.
func (h *Hearing) Silence(start time.Time) Scope {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.Before(start) {
		return ScopeSink
	}
	return ScopeAddress
}
