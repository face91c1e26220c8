package sinks

import "fmt"

// Runs tells a [Sequencer] that takes the messages of a batch one after the other which of them wait, because one before
// them of the same kind and key wasn't Accepted. The zero value is ready for a batch.
type Runs struct {
	stopped map[kindKey]stop
}

type kindKey struct{ kind, key string }

type stop struct {
	id      string
	outcome Outcome
}

// Waits says whether a message must not be sent, and its result then.
func (r *Runs) Waits(m *Message) (Result, bool) {
	if !m.Ordered || m.Key == nil {
		return Result{}, false
	}
	s, stopped := r.stopped[kindKey{m.Kind, *m.Key}]
	if !stopped {
		return Result{}, false
	}
	return Result{Outcome: Unavailable, Err: fmt.Errorf("not sent, to keep the order: %s of the same key was %v", s.id, s.outcome)}, true
}

// Stop notes that a message wasn't Accepted.
func (r *Runs) Stop(m *Message, o Outcome) {
	if !m.Ordered || m.Key == nil {
		return
	}
	if r.stopped == nil {
		r.stopped = map[kindKey]stop{}
	}
	r.stopped[kindKey{m.Kind, *m.Key}] = stop{m.ID, o}
}
