package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Order says how the jobs of a kind with a key are claimed; the zero value: like those without.
type Order struct {
	Keys bool // a job waits for all older ones of its key
	Skip bool // a dead job doesn't hold its key
	Run  int  // most jobs of one key in a claim; 0: the batch's own bound
}

// keys is what a process remembers of a kind's walk from key to key.
type keys struct {
	after   string         // the next walk starts here
	hot     bool           // the last one found as many open keys as it was allowed to
	rest    time.Time      // no walk before this: the last one was costly and found nothing
	waiting map[int64]bool // jobs without a key that sweeps found below the floor
}

const (
	// keysWalked bounds a walk: so many keys for each job of a batch.
	keysWalked = 4
	// keysBudget bounds how long one claim goes on with walks that meet only keys that are held.
	keysBudget = 100 * time.Millisecond
	// A walk over all of many keys, or past what a held snapshot keeps, that found nothing and took longer than keysCheap
	// isn't repeated at once: a process spends no more than one part in keysFraction on them.
	keysMany     = 100
	keysCheap    = 5 * time.Millisecond
	keysFraction = 20
	keysRest     = time.Second
)

// wait notes jobs that a sweep found; it says how many are new.
func (k *keys) wait(ids []int64, most int) (added int) {
	for _, id := range ids {
		if len(k.waiting) >= most {
			break
		}
		if !k.waiting[id] {
			if k.waiting == nil {
				k.waiting = map[int64]bool{}
			}
			k.waiting[id] = true
			added++
		}
	}
	return added
}

// walk is what one ordered claim asks for.
type walk struct {
	branches []keyBranch
	waiting  []int64
}

type keyBranch struct {
	*kind
	start           string
	most, keys, run int
	lacking         string
}

// walked is what it looked at of one kind.
type walked struct {
	branch       *keyBranch
	last         string
	keys, opened int
}

// claimKeys walks from key to key of the kinds that keep their order. It starts where the last walk ended, so that many
// keys that are held can't hide those behind them.
func (q *Queue) claimKeys(ctx context.Context, gates map[Pair]Gate) ([]Lease, error) {
	for start := time.Now(); ; {
		w := q.planKeys(gates)
		if len(w.branches) == 0 {
			return nil, nil
		}
		began := time.Now()
		t, looked, err := q.s.takeKeys(ctx, w)
		if err != nil {
			return nil, err
		}
		ended := q.learnKeys(w, t, looked, time.Since(began))
		if len(t.leases) > 0 || ended || time.Since(start) > keysBudget {
			return t.leases, nil
		}
	}
}

// planKeys asks the kinds that keep the order of keys for their part of a batch, as plan does for the others.
func (q *Queue) planKeys(gates map[Pair]Gate) (w walk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	var short, plenty []*kind
	for _, k := range q.rotated() {
		switch g, _ := k.gate(gates); {
		case !k.order.Keys || !g.Open || now.Before(k.keys.rest):
		case k.keys.hot:
			plenty = append(plenty, k)
		default:
			short = append(short, k)
		}
	}
	q.divide(short, plenty, func(k *kind, most int) {
		g, lacking := k.gate(gates)
		b := keyBranch{
			kind: k, start: k.keys.after, most: min(most, k.fits(q.s.opt.BatchBytes)),
			keys: keysWalked * q.s.opt.BatchSize, run: q.s.opt.BatchSize, lacking: lacking,
		}
		if g.Max > 0 {
			b.most = min(b.most, g.Max)
		}
		if k.order.Run > 0 {
			b.run = min(b.run, k.order.Run)
		}
		w.branches = append(w.branches, b)
		for id := range k.keys.waiting {
			if len(w.waiting) == q.s.opt.BatchSize || g.Max > 0 {
				break
			}
			w.waiting = append(w.waiting, id)
			delete(k.keys.waiting, id) // if the claim leaves it out, a sweep finds it again
		}
	})
	return w
}

// gate is what may be claimed of a kind whatever the priority: keys don't know priorities.
func (k *kind) gate(gates map[Pair]Gate) (g Gate, lacking string) {
	for _, p := range k.pairs {
		if g = gates[p.Pair]; g.Open {
			lacking = arrayLiteral(g.Lacking)
			p.lacking = lacking
			return g, lacking
		}
	}
	return Gate{}, ""
}

// takeKeys runs the ordered claim.
func (s *Store) takeKeys(ctx context.Context, w walk) (t taken, looked []walked, err error) {
	t, err = s.claim(ctx, s.sql.claimKeys, w.args(s.opt.BatchSize), func(rows pgx.Rows) error {
		var ord, n, opened int
		var key string
		if err := rows.Scan(nil, nil, &key, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, &ord, &n, &opened); err != nil {
			return err
		}
		looked = append(looked, walked{&w.branches[ord-1], key, n, opened})
		return nil
	})
	return t, looked, err
}

// args are the statement's parameters $1 to $9.
func (w *walk) args(rows int) []any {
	n := len(w.branches)
	kinds, starts, closes, lacking := make([]string, n), make([]string, n), make([]bool, n), make([]string, n)
	most, keys, run := make([]int32, n), make([]int32, n), make([]int32, n)
	for i, b := range w.branches {
		kinds[i], starts[i], closes[i], lacking[i] = b.name, b.start, !b.order.Skip, b.lacking
		most[i], keys[i], run[i] = int32(b.most), int32(b.keys), int32(b.run)
	}
	return []any{kinds, starts, closes, most, keys, run, lacking, w.waiting, int32(rows)}
}

// learnKeys remembers where the walks ended. It says whether all keys were looked at since they began at the first.
func (q *Queue) learnKeys(w walk, t taken, looked []walked, took time.Duration) (ended bool) {
	got, _, bytes := tally(t.leases)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.weigh(bytes)
	for at, n := range got {
		if p := q.find(at); p != nil {
			p.taken += n
		}
	}
	n := 0
	ended = true
	through := map[*kind]bool{} // walked to the last key
	for _, b := range w.branches {
		through[b.kind] = true
	}
	for _, l := range looked {
		through[l.branch.kind] = l.keys < l.branch.keys && l.opened < l.branch.most
		l.branch.kind.keys.after = l.last
		l.branch.kind.keys.hot = l.opened >= l.branch.most
		n += l.keys
	}
	costly := took > keysCheap && (n >= keysMany || q.held)
	for _, b := range w.branches {
		k := b.kind
		if !through[k] {
			ended = false
			continue
		}
		k.keys.after, k.keys.hot = "", false
		ended = ended && b.start == ""
		if len(t.leases) == 0 && costly {
			k.keys.rest = time.Now().Add(min(keysFraction*took, keysRest))
		}
	}
	return ended
}
