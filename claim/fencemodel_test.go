package claim

import (
	"fmt"
	"slices"
	"strings"
)

// The model of the fence: one job, everybody who ever claimed it, and what each may still do. It knows no tokens: it
// says by who claimed last what the statements must find out by the token alone.

// mostClaims bounds the claims of one history; with it the number of states is finite, and all are visited.
const mostClaims = 4

// maxAttempts of the model's job: two tries, so that both reapers and a retry by old workers come to its end.
const maxAttempts = 2

// lease is how long the row's leased_until still is.
type leaseState uint8

const (
	noLease leaseState = iota
	live
	over
)

// modelRow is what the model predicts of the row. It is comparable, and read back from the database as such.
type modelRow struct {
	Status    string
	Attempts  int
	Token     int // whose token the row has: the number of a claim from 1; 0 is none
	Lease     leaseState
	Reason    bool // last_error is set
	Finished  bool
	Delivered string // letters, sorted
	Closed    bool   // the job's key is closed by it
	Gone      bool   // deleted
}

// claimant is one who claimed the job, in the order of the claims.
type claimant struct {
	Relay     bool
	Attempts  int    // as the claim returned it: an old worker's only fence
	Delivered string // as the claim returned it
}

// state is one job and all that its holders remember.
type state struct {
	row    modelRow
	claims []claimant
	// open: the last claimant is a relay, and neither it nor a requeue by command has given the job back since, nor has
	// anybody put it back after it was done. It is the only one whose settlements may change the row.
	open bool
}

// key tells states apart. What a relay that isn't the last claimant remembers can't matter, and the walk proves it.
func (s state) key() string {
	var b strings.Builder
	fmt.Fprint(&b, s.row, s.open)
	for i, c := range s.claims {
		switch {
		case !c.Relay:
			fmt.Fprintf(&b, " o%d", c.Attempts)
		case i == len(s.claims)-1 && s.open:
			fmt.Fprintf(&b, " r%s", c.Delivered)
		default:
			b.WriteString(" r")
		}
	}
	return b.String()
}

// act is one kind of thing that can happen.
type act uint8

const (
	relayClaims act = iota
	relayClaimsByKey
	oldClaims
	oldTakesOver // of a job whose lease is over, without a reaper
	leaseRunsOut
	relayReaps
	oldReaps
	handRequeues     // by plain SQL: ready, attempts 0, whatever the job was
	handReadies      // by plain SQL: ready and nothing else
	handKills        // by plain SQL: dead
	commandRequeues  // relay dead requeue
	commandDiscards  // relay dead discard
	relaySettles     // with each verdict
	relaySettlesOnce // done, where done jobs are deleted at once
	relayExtends
	oldCompletes
	oldRetries
	acts // how many
)

// deed is an act, and by whom.
type deed struct {
	act     act
	who     int // place of the claimant in claims, for what claimants do
	verdict Verdict
}

func (d deed) String() string {
	switch d.act {
	case relaySettles:
		return fmt.Sprintf("relay of claim %d settles as %v", d.who+1, d.verdict)
	case relaySettlesOnce:
		return fmt.Sprintf("relay of claim %d settles as done and deletes", d.who+1)
	case relayExtends:
		return fmt.Sprintf("relay of claim %d extends", d.who+1)
	case oldCompletes:
		return fmt.Sprintf("old worker of claim %d completes", d.who+1)
	case oldRetries:
		return fmt.Sprintf("old worker of claim %d retries", d.who+1)
	}
	return [...]string{"a relay claims", "a relay claims by key", "an old worker claims", "an old worker takes over", "the lease runs out", "a relay reaps", "an old worker reaps",
		"requeued by hand", "made ready by hand", "made dead by hand", "requeued by command", "discarded by command"}[d.act]
}

// newDelivered is what a settlement reports as accepted: done and the others differ, so that late ones show.
func newDelivered(v Verdict) string {
	if v == Done {
		return "b"
	}
	return "a"
}

// deeds lists what can happen next.
func (s state) deeds() (all []deed) {
	if s.row.Gone {
		return nil // nothing names the row any more; that late statements bring nothing back needs no model
	}
	for a := relayClaims; a <= commandDiscards; a++ {
		if a > oldTakesOver || len(s.claims) < mostClaims {
			all = append(all, deed{act: a})
		}
	}
	for i, c := range s.claims {
		if !c.Relay {
			all = append(all, deed{act: oldCompletes, who: i}, deed{act: oldRetries, who: i})
			continue
		}
		for _, v := range []Verdict{Release, Done, Retry, Dead} {
			all = append(all, deed{act: relaySettles, who: i, verdict: v})
		}
		all = append(all, deed{act: relaySettlesOnce, who: i, verdict: Done}, deed{act: relayExtends, who: i})
	}
	return all
}

// after is what the deed must make of the state; lost: a relay's deed must report its lease as lost.
func (s state) after(d deed) (next state, lost bool) {
	next = state{s.row, slices.Clone(s.claims), s.open}
	r := &next.row
	switch d.act {
	case relayClaims, relayClaimsByKey, oldClaims:
		if s.row.Status == "ready" {
			next.claim(d.act != oldClaims)
		}
	case oldTakesOver:
		if s.row.Status == "running" && s.row.Lease == over {
			next.claim(false)
		}
	case leaseRunsOut:
		if r.Lease == live {
			r.Lease = over
		}
	case relayReaps: // what a relay claimed last, whoever lets it run out
		if r.Status == "running" && r.Token > 0 && r.Lease != live {
			r.expire()
		}
	case oldReaps: // whatever looks expired
		if r.Status == "running" && r.Lease == over {
			r.expire()
			r.Reason = true
		}
	case handRequeues, handReadies, handKills:
		next.byHand(d.act)
	case commandRequeues:
		if r.Status == "dead" {
			r.become("ready")
			r.Attempts, r.Lease, r.Token = 0, noLease, 0
			next.open = false
		}
	case commandDiscards:
		if r.Status == "dead" {
			*r = modelRow{Gone: true}
		}
	case oldCompletes, oldRetries:
		if r.Status == "running" && r.Attempts == s.claims[d.who].Attempts {
			r.oldEnds(d.act == oldRetries)
		}
	default:
		return next, !next.settle(d)
	}
	return next, false
}

// byHand: whoever writes to a done job ends what its last holder has to say about it.
func (s *state) byHand(by act) {
	if s.row.Status == "done" {
		s.row.Token, s.open = 0, false
	}
	switch by {
	case handRequeues:
		s.row.Attempts = 0
		fallthrough
	case handReadies:
		s.row.become("ready")
	case handKills:
		s.row.become("dead")
	}
}

func (s *state) claim(relay bool) {
	r := &s.row
	r.become("running")
	r.Attempts++
	r.Lease, r.Token = live, 0
	s.claims = append(s.claims, claimant{relay, r.Attempts, r.Delivered})
	if s.open = relay; relay {
		r.Token = len(s.claims)
	}
}

// settle is what the relay of a claim may do; false: it has lost the job, and may change nothing.
func (s *state) settle(d deed) bool {
	r := &s.row
	isDone := d.act == relaySettlesOnce || d.act == relaySettles && d.verdict == Done
	switch {
	case d.who != len(s.claims)-1, !s.open, r.Status == "done":
		return false
	case !isDone && r.Status != "running":
		return false // given back or dead: only a late acknowledgement still counts
	}
	switch d.act {
	case relaySettlesOnce:
		*r = modelRow{Gone: true}
		return true
	case relayExtends:
		r.Lease = live
		return true
	}
	r.Delivered = union(union(r.Delivered, s.claims[d.who].Delivered), newDelivered(d.verdict))
	r.Lease = noLease
	r.Reason = d.verdict != Done
	switch d.verdict {
	case Done:
		r.become("done")
	case Dead:
		r.become("dead")
	case Retry:
		r.become("ready")
		r.Token, s.open = 0, false
	case Release:
		r.become("ready")
		r.Attempts = max(r.Attempts, 1) - 1
		r.Token, s.open = 0, false
	}
	return true
}

// become changes the status, and what the triggers keep true beside it.
func (r *modelRow) become(status string) {
	r.Status = status
	r.Finished = status == "done" || status == "dead"
	r.Closed = status == "dead"
	r.Reason = r.Reason || status == "dead"
}

func (r *modelRow) expire() {
	if r.Lease = noLease; r.Attempts >= maxAttempts {
		r.become("dead")
	} else {
		r.become("ready")
	}
}

func (r *modelRow) oldEnds(retry bool) {
	r.Lease = noLease
	switch {
	case !retry:
		r.become("done")
	case r.Attempts >= maxAttempts:
		r.become("dead")
	default:
		r.become("ready")
	}
	r.Reason = r.Reason || retry
}

func union(a, b string) string {
	letters := []byte(a + b)
	slices.Sort(letters)
	return string(slices.Compact(letters))
}

// breach names the promise that a step breaks, "" if none: what must hold of every step, whatever the model predicts.
// changed: the row was written, even if only with the same values.
func breach(before state, d deed, row modelRow, changed bool) string {
	last := len(before.claims) - 1
	was, by := before.row, d.act
	claimed := by <= oldTakesOver && changed
	settles := by >= relaySettles && by <= relayExtends
	byHand := by == handRequeues || by == handReadies || by == handKills
	owner := last >= 0 && before.open && before.claims[last].Relay
	if claimed {
		owner, last = by <= relayClaimsByKey, last+1
	}
	switch {
	case settles && d.who != len(before.claims)-1 && changed:
		return "a relay changed a job that somebody else has claimed since"
	case settles && !before.open && changed:
		return "a relay changed a job that had been given back"
	case settles && was.Status == "done" && changed, was.Status == "done" && row.Status != "done" && !byHand:
		return "a done job was changed"
	case row.Gone:
		return ""
	case union(was.Delivered, row.Delivered) != row.Delivered:
		return "delivered has shrunk"
	case row.Token != 0 && (!owner || row.Token != last+1):
		return "a token that doesn't mean that this relay claimed the row last"
	case row.Finished != (row.Status == "done" || row.Status == "dead"):
		return "finished_at doesn't say whether the job is finished"
	case row.Status == "dead" && !row.Reason:
		return "dead without a reason"
	case row.Closed != (row.Status == "dead"):
		return "the key isn't closed exactly while the job is dead"
	}
	return ""
}
