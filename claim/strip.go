package claim

import (
	"slices"
	"time"
)

const (
	// sliceRows bounds the rows of one slice. What was drained and can't be removed yet is walked over as well and isn't
	// counted by any statement, so the time that a slice took decides how wide the next ones are.
	sliceRows  = 5000
	sliceHeavy = 50 * time.Millisecond
	sliceLight = 10 * time.Millisecond
)

// strip is the part of a pair below its floor, cut into slices that take a moment each. One pass looks at all of them.
type strip struct {
	ends    []end         // of the slices, in order; the last is where the pass ends
	next    int           // the slice to look at
	within  point         // how far the next slice was looked at already
	spent   time.Duration // on that
	suspect bool          // to be measured by itself: it was in a group that took long
}

// end is the upper end of a slice, and how long the slice took.
type end struct {
	at   point
	took time.Duration
}

// single reports that one quick look takes in all of it.
func (s *strip) single() bool {
	return !s.suspect && s.within == bottom && len(s.ends) <= 1 && (len(s.ends) == 0 || s.ends[0].took < sliceLight)
}

// cost is how long the last pass took.
func (s *strip) cost() (sum time.Duration) {
	for _, e := range s.ends {
		sum += e.took
	}
	return sum
}

// cut returns the next slice below to, false when there is nothing below it.
func (s *strip) cut(to point) (from, until point, ok bool) {
	if to == bottom {
		return from, until, false
	}
	above := slices.IndexFunc(s.ends, func(e end) bool { return !e.at.less(to) })
	switch last := len(s.ends) - 1; {
	case above >= 0 && s.ends[last].at != to: // the floor has sunk
		s.ends = append(s.ends[:above], end{at: to})
	case above >= 0 || s.next > 0: // a pass goes up to where the floor was as it began
	case last >= 0 && s.ends[last].took < sliceLight:
		s.ends[last].at = to
	default:
		s.ends = append(s.ends, end{at: to})
	}
	s.next = min(s.next, len(s.ends)-1)
	return s.begin(), s.ends[s.next].at, true
}

// begin is where the next slice begins.
func (s *strip) begin() point {
	from := bottom
	if s.next > 0 {
		from = s.ends[s.next-1].at
	}
	if from.less(s.within) && s.within.less(s.ends[s.next].at) {
		return s.within
	}
	return from
}

// passed moves on after a look that met rows and took so long. It widens and narrows the slices.
func (s *strip) passed(rows int, last point, took time.Duration) {
	if rows == sliceRows {
		s.within, s.spent = last, s.spent+took
		return
	}
	i, took := s.next, s.spent+took
	s.within, s.spent = bottom, 0
	s.ends[i].took = took
	switch {
	case took > sliceHeavy && s.split(i):
		i++
	case i > 0 && s.ends[i-1].took+took < sliceLight:
		s.ends[i].took += s.ends[i-1].took
		s.ends = slices.Delete(s.ends, i-1, i)
		i--
	}
	if s.next = i + 1; s.next == len(s.ends) {
		s.next = 0
	}
}

// split halves a slice in time. The first one has no beginning: what is cut off its top is twice as long as the slice
// above, so a few passes find the size.
func (s *strip) split(i int) bool {
	to := s.ends[i].at
	mid := to.at - time.Second.Microseconds()
	switch {
	case i > 0:
		mid = to.at/2 + s.ends[i-1].at.at/2
		if mid <= s.ends[i-1].at.at || mid >= to.at {
			return false // one moment can't be split
		}
	case len(s.ends) > 1:
		mid = to.at - 2*(s.ends[1].at.at-to.at)
	}
	half := s.ends[i].took / 2
	s.ends[i].took = half
	s.ends = slices.Insert(s.ends, i, end{at: point{mid, 0}, took: half})
	return true
}
