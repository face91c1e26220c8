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
	// sliceMost bounds a look, sliceLongest one at a slice that can't be split any more.
	sliceMost    = 500 * time.Millisecond
	sliceLongest = 4 * time.Second
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
	s.ends[i].took = took
	switch {
	case took > sliceHeavy && s.split(i):
		i++
	case i > 0 && s.ends[i-1].took+took < sliceLight:
		s.ends[i].took += s.ends[i-1].took
		s.ends = slices.Delete(s.ends, i-1, i)
		i--
	}
	s.advance(i)
}

// late moves on after a look that was cut off: its slice is split and the lower part is next. One that can't be split is
// left out of this pass.
func (s *strip) late(took time.Duration) {
	i := s.next
	s.ends[i].took, s.spent = took, 0
	if !s.split(i) {
		s.advance(i)
	}
}

// advance goes on to the slice after i.
func (s *strip) advance(i int) {
	s.within, s.spent = bottom, 0
	if s.next = i + 1; s.next == len(s.ends) {
		s.next = 0
	}
}

// most bounds the look at the next slice. Where that can be split, being cut off costs little and teaches much.
func (s *strip) most() time.Duration {
	if _, ok := s.middle(s.next); ok {
		return sliceMost
	}
	return sliceLongest
}

// split cuts a slice in two.
func (s *strip) split(i int) bool {
	mid, ok := s.middle(i)
	if ok {
		half := s.ends[i].took / 2
		s.ends[i].took = half
		s.ends = slices.Insert(s.ends, i, end{at: point{mid, 0}, took: half})
	}
	return ok
}

// middle is where a slice is split, in time; one moment can't be. The first slice has no beginning: what is cut off its
// top is four times as long as the slice above, so a few steps find the size.
func (s *strip) middle(i int) (mid int64, ok bool) {
	to := s.ends[i].at.at
	if to <= oldest {
		return 0, false
	}
	if i > 0 {
		from := s.ends[i-1].at.at
		mid = to/2 + from/2
		return mid, mid > from && mid < to
	}
	mid = to - time.Second.Microseconds()
	if len(s.ends) > 1 {
		mid = min(mid, to-4*(s.ends[1].at.at-to))
	}
	return mid, mid > oldest
}
