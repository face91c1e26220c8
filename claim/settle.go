package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// reasonMost bounds what is kept of an error.
const reasonMost = 4 << 10

// Settle writes what became of the leases, in one durable transaction, fenced by id and token. It returns the ids on
// which it changed nothing because the lease was lost. It is sent again after a broken connection, until ctx ends;
// what doesn't match then is no lost lease. Released jobs lower the floors, so they are claimed again at once.
func (q *Queue) Settle(ctx context.Context, outcomes []Outcome) (lost []int64, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	lost, sure, err := q.s.settle(ctx, outcomes)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released(outcomes)
	if err != nil {
		return lost, fmt.Errorf("settle: %w", err)
	}
	if sure {
		q.served(outcomes, lost)
	}
	return lost, nil
}

// released lets claims look again at what was given back. After an error as well: nobody knows what it did. Called under
// mu.
func (q *Queue) released(outcomes []Outcome) {
	for _, o := range outcomes {
		if k := q.kinds[o.Lease.Kind]; k != nil {
			k.keys.rest = time.Time{} // its key may be open again
		}
		if o.Verdict != Release || o.After > 0 {
			continue
		}
		if p := q.find(Pair{o.Lease.Kind, o.Lease.Priority}); p != nil {
			p.reopen(before(o.Lease.RunAt, o.Lease.ID), pointAt(o.Lease.RunAt))
		}
	}
}

// settle writes all outcomes in one transaction, or, when a row is refused, all others: they must not wait for their
// leases to end. sure is false when an answer was lost on the way: then nobody knows which leases were.
func (s *Store) settle(ctx context.Context, outcomes []Outcome) (lost []int64, sure bool, err error) {
	sure = true
	other := halve(outcomes, func(part []Outcome) error {
		l, known, err := s.settleAll(ctx, part)
		lost, sure = append(lost, l...), sure && known
		return err
	}, func(_ Outcome, cause error) error {
		err, sure = cmp.Or(err, cause), false
		return nil
	})
	return lost, sure && other == nil, cmp.Or(err, other)
}

// settleAll writes all outcomes or none.
func (s *Store) settleAll(ctx context.Context, outcomes []Outcome) (lost []int64, sure bool, err error) {
	groups, arrived := s.group(outcomes), s.arrived(outcomes)
	done := map[int64]bool{}
	unsure, err := s.persist(ctx, func(b *pgx.Batch) {
		clear(done)
		b.Queue(s.sql.settleSettings, s.timeout(), "on")
		for _, g := range arrived {
			b.Queue(g.sql, g.args...)
		}
		for _, g := range groups {
			b.Queue(g.sql, g.args...).Query(collectIDs(done))
		}
	})
	if err != nil || unsure {
		return nil, false, err
	}
	return missing(outcomes, done), true, nil
}

// collectIDs notes the ids that a statement returns.
func collectIDs(into map[int64]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			into[id] = true
		}
		return rows.Err()
	}
}

func missing(outcomes []Outcome, done map[int64]bool) (lost []int64) {
	for _, o := range outcomes {
		if !done[o.Lease.ID] {
			lost = append(lost, o.Lease.ID)
		}
	}
	return lost
}

// group is one statement: the outcomes with one verdict and token, and for done also with one set of destinations.
type group struct {
	sql  string
	args []any
}

type groupKey struct {
	verdict   Verdict
	token     int64
	delivered string
}

func (s *Store) group(outcomes []Outcome) []group {
	var order []groupKey
	members := map[groupKey][]*Outcome{}
	for i := range outcomes {
		o := &outcomes[i]
		at := groupKey{verdict: o.Verdict, token: o.Lease.Token}
		if o.Verdict == Done && !s.opt.DeleteDone {
			at.delivered = arrayLiteral(o.delivered())
		}
		if members[at] == nil {
			order = append(order, at)
		}
		members[at] = append(members[at], o)
	}
	groups := make([]group, len(order))
	for i, at := range order {
		groups[i] = s.statement(at, members[at])
	}
	return groups
}

func (s *Store) statement(at groupKey, os []*Outcome) group {
	c := columnsOf(os)
	switch at.verdict {
	case Done:
		if s.opt.DeleteDone {
			return group{s.sql.doneDelete, []any{c.ids, at.token}}
		}
		var delivered any
		if at.delivered != "" {
			delivered = at.delivered
		}
		return group{s.sql.done, []any{c.ids, at.token, delivered}}
	case Retry:
		return group{s.sql.retry, []any{at.token, c.ids, c.after, c.alone, c.reasons, c.delivered}}
	case Dead:
		return group{s.sql.dead, []any{at.token, c.ids, c.reasons, c.delivered}}
	default:
		return group{s.sql.release, []any{at.token, c.ids, c.after, c.reasons, c.delivered}}
	}
}

// columns are outcomes as the statements take them: an array for each parameter.
type columns struct {
	ids, after         []int64
	alone              []bool
	reasons, delivered []string
}

func columnsOf(os []*Outcome) columns {
	n := len(os)
	c := columns{make([]int64, n), make([]int64, n), make([]bool, n), make([]string, n), make([]string, n)}
	for i, o := range os {
		c.ids[i], c.after[i], c.alone[i] = o.Lease.ID, max(o.After.Microseconds(), 0), o.Alone
		c.reasons[i], c.delivered[i] = reason(o.Error), arrayLiteral(o.delivered())
	}
	return c
}

// delivered is all destinations that have accepted the job, in the order in which they did.
func (o *Outcome) delivered() []string {
	if len(o.Delivered) == 0 {
		return o.Lease.Delivered
	}
	all := append([]string(nil), o.Lease.Delivered...)
	for _, d := range o.Delivered {
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// reason makes an error text one that Postgres takes: valid UTF-8 without NUL, cut at a character.
func reason(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= reasonMost {
		return text
	}
	cut := reasonMost
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// Extend renews the leases for another full length and moves Until in each that is still ours; it returns the ids of
// those that are lost: somebody else may have claimed them, or will, as Postgres refuses to renew them.
func (q *Queue) Extend(ctx context.Context, leases []*Lease) (lost []int64, err error) {
	if len(leases) == 0 {
		return nil, nil
	}
	err = halve(leases, func(part []*Lease) error {
		l, err := q.s.extend(ctx, part)
		lost = append(lost, l...)
		return err
	}, func(l *Lease, cause error) error {
		lost = append(lost, l.ID)
		q.s.opt.Log.Warn("the database refuses to renew a lease", "job_id", l.ID, "error", cause)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	return lost, nil
}

// extend renews all leases that are still ours, or none.
func (s *Store) extend(ctx context.Context, leases []*Lease) (lost []int64, err error) {
	ids := map[int64][]int64{}
	for _, l := range leases {
		ids[l.Token] = append(ids[l.Token], l.ID)
	}
	done, until := map[int64]bool{}, time.Time{}
	_, err = s.persist(ctx, func(b *pgx.Batch) {
		clear(done)
		until = time.Now().Add(s.opt.Lease)
		b.Queue(s.sql.settleSettings, s.timeout(), "off")
		for token, list := range ids {
			b.Queue(s.sql.extend, list, token, s.opt.Lease.Microseconds()).Query(collectIDs(done))
		}
	})
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		if done[l.ID] {
			l.Until = until
		} else {
			lost = append(lost, l.ID)
		}
	}
	return lost, nil
}
