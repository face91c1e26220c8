package history

import (
	"slices"
	"strings"
)

// spell is one claim of a job, and what ended it.
type spell struct {
	*Change
	ends []*Change // a lease that lapsed can still be acknowledged while nobody else has claimed the job
}

// how a spell ended.
const (
	settled  = "settled"
	released = "released"
	lapsed   = "lapsed"
	retried  = "retried"
)

// checkChanges walks through a job's life and returns its claims. Each change must be one that its maker may make, and
// attempts must count what happened.
func (j *judge) checkChanges(row *Row) []*spell {
	var spells []*spell
	status, attempts := "ready", 0
	for _, c := range j.changes[row.ID] {
		if c.From != status || c.AttemptsFrom != attempts {
			j.add(Untrue, row.ID, "%s with %d attempts became %s with %d before the next change", status, attempts, c.From, c.AttemptsFrom)
		}
		status, attempts = c.To, c.Attempts
		if c.To == "running" {
			spells = append(spells, &spell{Change: c})
			j.expect(c, c.AttemptsFrom+1)
			continue
		}
		if len(spells) == 0 {
			j.add(Stale, row.ID, "%s made it %s before anybody had claimed it", c.By, c.To)
			continue
		}
		s := spells[len(spells)-1]
		s.ends = append(s.ends, c)
		j.checkHolder(s, c)
		j.checkWord(row, c)
	}
	if row.Status != status || row.Attempts != attempts {
		j.add(Untrue, row.ID, "%s with %d attempts at the end, its changes lead to %s with %d", row.Status, row.Attempts, status, attempts)
	}
	return spells
}

// checkHolder: only the last one who claimed it ends a claim, but for a lease that is over.
func (j *judge) checkHolder(s *spell, c *Change) {
	how := c.how()
	if how == lapsed {
		j.Lapsed++
		if !c.Expired {
			j.add(Stale, c.Job, "%s ended the lease of %s before its end", c.By, s.By)
		}
	} else if c.By != s.By {
		j.add(Stale, c.Job, "%s made it %s (%s) while it was %s's", c.By, c.To, how, s.By)
	}
	want := c.AttemptsFrom
	if how == released {
		want--
	}
	j.expect(c, want)
}

func (j *judge) expect(c *Change, attempts int) {
	if c.Attempts != attempts {
		j.add(Untrue, c.Job, "%s made it %s with %d attempts, want %d", c.By, c.To, c.Attempts, attempts)
	}
}

// checkWord: a retry names a destination that still lacks the job, a death has a reason, done has none.
func (j *judge) checkWord(row *Row, c *Change) {
	route := j.Routes[row.Kind]
	switch {
	case c.how() == retried && !slices.ContainsFunc(route.To, func(to string) bool {
		return !slices.Contains(c.Delivered, to) && strings.Contains(c.Error, to)
	}):
		j.add(Untrue, c.Job, "to be tried again, and no destination that lacks it is named in %q", c.Error)
	case c.To == "dead" && c.Error == "", c.To == "done" && c.Error != "":
		j.add(Untrue, c.Job, "%s with the error %q", c.To, c.Error)
	}
}

// how a change ended a claim. A lease that lapsed leaves its token, a release gives the attempt back.
func (c *Change) how() string {
	switch {
	case c.To == "done":
		return settled
	case c.To == "dead" && c.Error == "lease expired", c.To == "ready" && c.TokenFrom != 0 && c.TokenTo != 0:
		return lapsed
	case c.To == "ready" && c.TokenFrom == 0: // old workers give nothing back but what has lapsed
		return lapsed
	case c.To == "ready" && c.Attempts < c.AttemptsFrom:
		return released
	default:
		return retried
	}
}

// accepted says whether the claim's holder noted that this destination has the job.
func (s *spell) accepted(to string) bool {
	return slices.ContainsFunc(s.ends, func(c *Change) bool { return slices.Contains(c.Accepted, to) })
}
