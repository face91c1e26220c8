package kafka

import (
	"fmt"
	"slices"

	"github.com/jobrelay/relay/sinks"
)

// run is what a batch has of one kind and key whose order counts.
type run struct {
	hash   uint64 // of kind and key
	failed int    // index of the first message that wasn't accepted, once its round is over; -1: none

	last    job    // of the message planned last
	address string // of the round planned last
	round   int
	jobs    int // in that round
	several bool
}

// link is a message's place in its run. Round 0 is sent first, round 1 when the results of round 0 are known.
type link struct {
	run   *run // nil: order doesn't count
	round int
}

// job tells the messages of one job, to several addresses, from those of the next.
type job struct {
	id     string
	replay int64
}

func jobOf(m *sinks.Message) job { return job{m.ID, m.Replay} }

// plan finds the runs of the batch. As a rule each goes to one topic, so to one partition, and there is one round.
// Where a template sends jobs of one key to several topics, each waits for the one before.
func (p *publication) plan() {
	var runs map[uint64]*run
	var room []run // for all of them at once
	p.rounds = 1
	for i := range p.batch {
		m := &p.batch[i]
		if !m.Ordered || m.Key == nil {
			continue
		}
		if runs == nil {
			runs, room, p.links = map[uint64]*run{}, make([]run, len(p.batch)-i), make([]link, len(p.batch))
		}
		hash := p.sequencer.hash(m.Kind, *m.Key)
		r := runs[hash]
		if r == nil {
			r, room = &room[0], room[1:]
			r.hash, r.failed = hash, -1
			runs[hash] = r
		}
		p.links[i] = link{r, r.add(m)}
		p.rounds = max(p.rounds, r.round+1)
	}
}

// add returns the round of the run's next message. A round has jobs to one address or one job to several.
func (r *run) add(m *sinks.Message) int {
	next, elsewhere := jobOf(m) != r.last, r.several || m.Address != r.address
	switch {
	case r.jobs == 0:
		r.jobs, r.address = 1, m.Address
	case next && elsewhere, !next && m.Address != r.address && r.jobs > 1:
		r.round, r.jobs, r.address, r.several = r.round+1, 1, m.Address, false
	case next:
		r.jobs++
	case elsewhere:
		r.several = true
	}
	r.last = jobOf(m)
	return r.round
}

// in says whether a message belongs to a round.
func (p *publication) in(round, i int) bool {
	return p.links == nil && round == 0 || p.links != nil && p.links[i].round == round
}

// run returns the run of a message, nil where order doesn't count.
func (p *publication) runOf(i int) *run {
	if p.links == nil {
		return nil
	}
	return p.links[i].run
}

// behind says whether message i comes after message failed in a run, as another job's.
func (p *publication) behind(i, failed int) bool {
	return i > failed && p.runOf(i) == p.runOf(failed) && jobOf(&p.batch[i]) != jobOf(&p.batch[failed])
}

// skipped is the result of a message that is behind one that wasn't accepted.
func (p *publication) skipped(failed int) sinks.Result {
	return sinks.Result{Outcome: sinks.Unavailable, Err: fmt.Errorf("%w: %s of the same key was %v", errSkipped, p.batch[failed].ID, p.results[failed].Outcome)}
}

// holdBack takes out of a queue what is behind a message of it that wasn't accepted.
func (p *publication) holdBack(q *queue, failed int) {
	if p.runOf(failed) == nil {
		return
	}
	q.filter(func(i int) bool {
		if p.behind(i, failed) {
			p.results[i] = p.skipped(failed)
			return false
		}
		return true
	})
}

// filter keeps the messages of a queue that keep says yes to.
func (q *queue) filter(keep func(i int) bool) {
	for n, piece := range q.pieces {
		kept := make([]int, 0, len(piece))
		for _, i := range piece {
			if keep(i) {
				kept = append(kept, i)
			}
		}
		q.pieces[n] = kept
	}
	q.pieces = slices.DeleteFunc(q.pieces, func(piece []int) bool { return len(piece) == 0 })
}

// closeRound notes which runs end here. What is behind and was refused as well would have waited: the refusal of the
// one before is what counts.
func (p *publication) closeRound(round int) {
	for i, l := range p.links {
		if l.run == nil || l.round != round {
			continue
		}
		switch r := p.results[i]; {
		case l.run.failed < 0:
			if r.Outcome != sinks.Accepted {
				l.run.failed = i
			}
		case p.behind(i, l.run.failed) && (r.Outcome == sinks.Rejected || r.Outcome == sinks.Failed):
			p.results[i] = p.skipped(l.run.failed)
		}
	}
}
