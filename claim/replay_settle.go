package claim

// arrived are the statements that note on originals where their copies have arrived now; none for jobs that aren't copies.
func (s *Store) arrived(outcomes []Outcome) (groups []group) {
	type key struct {
		token int64
		done  bool
	}
	var order []key
	members := map[key]*columns{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Lease.ReplayOf == nil || len(o.Delivered) == 0 {
			continue
		}
		at := key{o.Lease.Token, o.Verdict == Done}
		if members[at] == nil {
			order, members[at] = append(order, at), &columns{}
		}
		c := members[at]
		c.ids, c.delivered = append(c.ids, o.Lease.ID), append(c.delivered, arrayLiteral(o.Delivered))
	}
	for _, at := range order {
		groups = append(groups, group{s.sql.replay.delivered, []any{at.token, members[at].ids, members[at].delivered, at.done}})
	}
	return groups
}
