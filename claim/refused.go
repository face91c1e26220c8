package claim

import (
	"slices"
	"sync"
	"time"
)

const (
	// A row that was refused is left out for refusedFirst, and twice as long each time that it is refused again.
	refusedFirst   = time.Minute
	refusedLongest = time.Hour
	// refusedMost bounds how many rows are left out at a time.
	refusedMost = 10_000
	// refusedNamed bounds how many a line of the log names.
	refusedNamed = 16
)

// refusals are the rows that claims, sweeps and cleaning leave out because Postgres refused them, or refused something
// that they were among. Its methods may be called at once.
type refusals struct {
	mu       sync.Mutex
	rows     map[int64]refusal
	suspects []suspects           // parts of which nobody knows which row it was
	kinds    map[string]time.Time // of which too many rows are refused: left out until then
	pause    time.Time            // no search before this: others take their turn
}

type refusal struct {
	wait  time.Duration // 0: only suspected
	until time.Time
	from  *suspects // how to claim it again; nil: it isn't claimed, and no more left out after until
}

// ids are the rows to leave out, nil for none: then the statements are planned without the condition.
func (r *refusals) ids() (ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for id, row := range r.rows {
		switch over := now.Sub(row.until); {
		case row.from != nil || over < 0:
			ids = append(ids, id)
		case over > refusedLongest:
			delete(r.rows, id)
		}
	}
	return ids
}

// rests says whether all of a kind is left out.
func (r *refusals) rests(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.kinds[kind])
}

// suspect leaves out the rows of a part until a search has told which are refused. false: there is no room for so many.
func (r *refusals) suspect(s suspects) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows)+len(s.ids) > refusedMost {
		return false
	}
	if r.rows == nil {
		r.rows = map[int64]refusal{}
	}
	for _, id := range s.ids {
		if _, known := r.rows[id]; !known {
			r.rows[id] = refusal{from: &s}
		}
	}
	r.suspects = append(r.suspects, s)
	return true
}

// take gives a part to look at: one that is suspected, or a row that was left out for long enough.
func (r *refusals) take(mayClaim func(suspects) bool) (s suspects, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.rows) == 0 || now.Before(r.pause) {
		return s, false
	}
	most := -1
	for i := range r.suspects { // the largest first: most are innocent
		if (most < 0 || len(r.suspects[i].ids) > len(r.suspects[most].ids)) && mayClaim(r.suspects[i]) {
			most = i
		}
	}
	if most >= 0 {
		s = r.suspects[most]
		r.suspects = slices.Delete(r.suspects, most, most+1)
		return s, true
	}
	for id, row := range r.rows {
		if row.wait > 0 && row.from != nil && now.After(row.until) && mayClaim(*row.from) {
			row.until = now.Add(refusedFirst) // not by two at once
			r.rows[id] = row
			s = *row.from
			s.ids = []int64{id}
			return s, true
		}
	}
	return s, false
}

// searching says whether rows are suspected.
func (r *refusals) searching() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.suspects) > 0
}

// back puts parts back to be looked at first.
func (r *refusals) back(parts ...suspects) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.suspects = append(slices.Clip(parts), r.suspects...)
}

// clear lets rows be claimed again.
func (r *refusals) clear(ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.rows, id)
	}
}

// took says how long a look took: at least as long others have their turn.
func (r *refusals) took(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d > searchQuick {
		r.pause = time.Now().Add(d)
	}
}

// add notes rows that are refused; it says which are new.
func (r *refusals) add(ids []int64, from *suspects) (added []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[int64]refusal{}
	}
	for _, id := range ids {
		row, known := r.rows[id]
		if !known && len(r.rows) >= refusedMost {
			continue
		}
		if row.wait == 0 {
			added = append(added, id)
		}
		row.wait = min(max(2*row.wait, refusedFirst), refusedLongest)
		row.until, row.from = time.Now().Add(row.wait), from
		r.rows[id] = row
	}
	return added
}

// rest leaves out the kind that has the most refused rows, for a while.
func (r *refusals) rest() (kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, now := map[string]int{}, time.Now()
	for _, row := range r.rows {
		if row.from != nil && now.After(r.kinds[row.from.Kind]) {
			n[row.from.Kind]++
		}
	}
	most := 0
	for k, rows := range n {
		if rows > most {
			kind, most = k, rows
		}
	}
	if r.kinds == nil {
		r.kinds = map[string]time.Time{}
	}
	if most > 0 {
		r.kinds[kind] = now.Add(refusedFirst)
	}
	return kind
}

// name says once which rows are left out, in one line however many they are.
func (q *Queue) name(ids []int64, cause error) {
	if len(ids) > 0 {
		q.s.opt.Log.Warn("the database refuses rows; they are left out for a while", "jobs", len(ids),
			"job_ids", ids[:min(len(ids), refusedNamed)], "error", cause)
	}
}
