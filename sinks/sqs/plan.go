package sqs

import (
	"cmp"
	"slices"
)

const mostEntries = 10

// call is what one request carries.
type call []*entry

// strand is calls that are made one after another. Strands are made side by side.
type strand []call

// plan puts the entries of one queue into strands.
func plan(entries []*entry, fifo bool, limit int) []strand {
	if fifo {
		return planGroups(entries, limit)
	}
	calls := pack(entries, limit)
	strands := make([]strand, len(calls))
	for i, c := range calls {
		strands[i] = strand{c}
	}
	return strands
}

// pack fills calls in order, as many entries and bytes as one may have.
func pack(entries []*entry, limit int) (calls []call) {
	var c call
	bytes := 0
	for _, e := range entries {
		if len(c) == mostEntries || (len(c) > 0 && bytes+e.size > limit) {
			calls, c, bytes = append(calls, c), nil, 0
		}
		c = append(c, e)
		bytes += e.size
	}
	if len(c) > 0 {
		calls = append(calls, c)
	}
	return calls
}

// planGroups makes a strand of up to ten groups: its first calls carry the first message of each, the next ones the
// second, and so on. Groups of like length go together, so that calls stay full to the end.
func planGroups(entries []*entry, limit int) (strands []strand) {
	groups := byGroup(entries)
	slices.SortStableFunc(groups, func(a, b []*entry) int { return cmp.Compare(len(b), len(a)) })
	for bundle := range slices.Chunk(groups, mostEntries) {
		var s strand
		for step := range bundle[0] {
			var heads []*entry
			for _, g := range bundle {
				if step < len(g) {
					heads = append(heads, g[step])
				}
			}
			s = append(s, pack(heads, limit)...)
		}
		strands = append(strands, s)
	}
	return strands
}

// byGroup splits entries by group, keeping the order of both.
func byGroup(entries []*entry) (groups [][]*entry) {
	place := map[string]int{}
	for _, e := range entries {
		i, ok := place[e.group]
		if !ok {
			i = len(groups)
			place[e.group] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}
