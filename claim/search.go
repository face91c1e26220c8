package claim

import (
	"context"
	"math"
	"slices"
	"time"
)

// suspects are rows among which one was refused, and how they can be claimed.
type suspects struct {
	Pair
	ids     []int64
	ordered bool     // by the walk from key to key
	keys    []string // then: theirs
}

// gate is what may be claimed of them; keys don't know priorities.
func (s *suspects) gate(gates map[Pair]Gate) Gate {
	if !s.ordered {
		return gates[s.Pair]
	}
	for p, g := range gates {
		if p.Kind == s.Kind && g.Open {
			return g
		}
	}
	return Gate{}
}

const (
	// searchTries bounds how often a claim is made again behind what it was refused for.
	searchTries = 3
	// searchMost bounds how long one claim goes on while it finds nothing but rows that are refused.
	searchMost = 2 * time.Second
	// A row can be slow to be refused. So parts are split into searchSplit: it is met once on each level, and the neighbours
	// are claimed on the way. And parts of several rows get only searchStep, though Postgres can't end every function.
	searchSplit = 8
	searchStep  = time.Second
	// After a step that took longer than searchQuick others have their turn for as long.
	searchQuick = 100 * time.Millisecond
)

// refusesClaim is refusesRow of a claim, which reads the jobs as well: one that is too large may end it in other ways.
func refusesClaim(err error) bool {
	return refusesRow(err) || cutOff(err)
}

// suspect leaves out what a refused claim would have taken, which next lists, so that another takes what lies behind.
// again: it can be made at once. An error says that it wasn't because of a row.
func (q *Queue) suspect(cause error, next func() ([]suspects, error)) (again bool, err error) {
	parts, err := next()
	if err != nil {
		return false, err
	}
	if len(parts) == 0 && !q.refused.searching() { // else somebody has just found the same
		return false, cause
	}
	for _, s := range parts {
		if q.refused.suspect(s) {
			continue
		}
		kind := q.refused.rest()
		if kind == "" {
			return false, cause
		}
		q.s.opt.Log.Warn("the database refuses too many rows of a kind; all of it is left out for a while", "kind", kind, "for", refusedFirst, "error", cause)
		return false, nil
	}
	return true, nil
}

// search claims of what is suspected. A part that is refused is split, down to the row, which is left out from then on for
// a while; then it is tried alone. It ends when it has claimed something.
func (q *Queue) search(ctx context.Context, gates map[Pair]Gate) ([]Lease, error) {
	var named []int64
	var cause error
	defer func() { q.name(named, cause) }()
	for start := time.Now(); time.Since(start) < searchMost; {
		s, ok := q.refused.take(func(s suspects) bool { return s.gate(gates).Open })
		if !ok {
			return nil, nil
		}
		began := time.Now()
		leases, err := q.claimOnly(ctx, s, s.gate(gates))
		q.refused.took(time.Since(began))
		switch {
		case err == nil:
			q.settleSuspects(s, leases)
			if len(leases) > 0 {
				return leases, nil
			}
		case !refusesClaim(err):
			q.refused.back(s)
			return nil, err
		case len(s.ids) == 1:
			named, cause = append(named, q.refused.add(s.ids, &s)...), err
		default:
			q.refused.back(s.split()...)
		}
	}
	return nil, nil
}

// split gives smaller parts.
func (s *suspects) split() (parts []suspects) {
	for ids := range slices.Chunk(s.ids, (len(s.ids)+searchSplit-1)/searchSplit) {
		part := *s
		part.ids = ids
		parts = append(parts, part)
	}
	return parts
}

// settleSuspects clears what was claimed. What the claim had no room for is still suspected; where it took nothing they
// have changed, or must wait for others.
func (q *Queue) settleSuspects(s suspects, leases []Lease) {
	left := slices.DeleteFunc(slices.Clone(s.ids), func(id int64) bool {
		return slices.ContainsFunc(leases, func(l Lease) bool { return l.ID == id })
	})
	if len(leases) == 0 || len(left) == 0 {
		q.refused.clear(s.ids)
		return
	}
	q.refused.clear(slices.DeleteFunc(slices.Clone(s.ids), func(id int64) bool { return slices.Contains(left, id) }))
	s.ids = left
	q.refused.back(s)
}

// claimOnly claims of these rows.
func (q *Queue) claimOnly(ctx context.Context, s suspects, g Gate) ([]Lease, error) {
	only := among{ids: s.ids, only: true, within: q.s.claimBound()}
	if len(s.ids) > 1 {
		only.within = min(only.within, searchStep)
	}
	most := len(s.ids)
	if g.Max > 0 {
		most = min(most, g.Max)
	}
	q.mu.Lock()
	kind, pair := q.kinds[s.Kind], q.find(s.Pair)
	q.mu.Unlock()
	if kind == nil || pair == nil && !s.ordered {
		return nil, nil
	}
	if !s.ordered {
		b := branch{pair: pair, kind: kind, floor: bottom, to: top, most: most, lacking: arrayLiteral(g.Lacking)}
		p := plan{branches: []branch{b}, rows: most}
		t, err := q.s.claim(ctx, q.s.sql.claim, p.args(), only, nil)
		return t.leases, err
	}
	b := keyBranch{kind: kind, most: most, heads: len(s.keys), run: most, lacking: arrayLiteral(g.Lacking)}
	for _, key := range s.keys {
		b.known = append(b.known, knownKey{key, math.MinInt64})
	}
	t, _, err := q.s.takeKeys(ctx, walk{branches: []keyBranch{b}, waiting: s.ids}, most, only)
	return t.leases, err
}
