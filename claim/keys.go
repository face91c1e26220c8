package claim

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Order says how the jobs of a kind with a key are claimed; the zero value: like those without.
type Order struct {
	Keys bool // a job waits for all older ones of its key
	Skip bool // a dead job doesn't hold its key
	Run  int  // most jobs of one key in a claim; 0: the batch's own bound
}

// Closes says whether a dead job holds its key.
func (o Order) Closes() bool { return o.Keys && !o.Skip }

// keys is what a process remembers of a kind's keys.
type keys struct {
	known   knownKeys      // those that it has just served, and which need no walk
	walk    time.Time      // no walk before this while there are known ones
	after   string         // the next walk starts here
	hot     bool           // the last one found as many open keys as it was allowed to
	depth   float64        // how many jobs of a key to take: as many as are likely there
	rest    time.Time      // no walk before this: the last one was costly and found nothing
	waiting map[int64]bool // jobs without a key that sweeps found below the floor

	steep     time.Time     // no walk before this: the last one was cut off. Sweeps find keys meanwhile
	steepRest time.Duration // how long that was
	fruitless time.Time     // when a claim last got none of the waiting jobs that it asked for
}

const (
	// While known keys bring jobs, walks are made so often that a job of another key waits no longer than this, and take
	// no more than one part in walksFraction of the time.
	walksEvery    = 50 * time.Millisecond
	walksFraction = 4
	// keysWalked bounds a walk: so many keys for each job of a batch.
	keysWalked = 4
	// depthMost bounds how much of one key is taken while there are others.
	depthMost = 16
	// keysBudget bounds how long one claim goes on with walks that meet only keys that are held.
	keysBudget = 100 * time.Millisecond
	// A walk over all of many keys, or past what a held snapshot keeps, that found nothing and took longer than keysCheap
	// isn't repeated at once: a process spends no more than one part in keysFraction on them.
	keysMany     = 100
	keysCheap    = 5 * time.Millisecond
	keysFraction = 20
	keysRest     = time.Second
	// walkMost bounds a walk. After one that was cut off none is made for so long, and twice as long each further time.
	walkMost   = 4 * time.Second
	steepLeast = 20 * time.Second
	steepMost  = 2 * time.Minute
)

// found notes what a sweep found; it says how many jobs without a key are new.
func (k *keys) found(c *slice, now time.Time, batch int) (added int) {
	for _, key := range c.keys {
		k.known.add(key, math.MinInt64, keysWalked*batch)
	}
	if now.Sub(k.fruitless) <= fruitlessRest {
		return 0
	}
	return k.wait(c.ids, 4*batch)
}

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

// deepen learns how many jobs of a key are there to be taken. A claim of many keys with a few jobs each would leave no
// key to other workers, and one of few keys would come back nearly empty where each has but one job.
func (k *keys) deepen(l walked, rows int) {
	if l.opened == 0 {
		return
	}
	got, due := float64(rows)/float64(l.opened), float64(min(l.branch.run, (l.branch.most+l.opened-1)/l.opened))
	if got >= due*3/4 {
		k.depth = min(max(2*k.depth, 2), depthMost, float64(l.branch.run))
	} else {
		k.depth = max(got, 1)
	}
}

// walk is what one ordered claim asks for.
type walk struct {
	branches []keyBranch
	waiting  []int64
}

type keyBranch struct {
	*kind
	start             string
	most, keys, heads int
	run               int
	lacking           string
	known             []knownKey
	waiting           []int64
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
	for start, try := time.Now(), 0; ; {
		w := q.planKeys(gates)
		if len(w.branches) == 0 {
			return nil, nil
		}
		began := time.Now()
		t, looked, err := q.s.takeKeys(ctx, w, q.s.opt.BatchSize, q.butRefused(q.s.opt.Statement))
		if cutOff(err) && q.giveUpKeys(w) {
			continue
		}
		if refusesClaim(err) {
			again, err := q.suspect(err, func() ([]suspects, error) { return q.nextOfKeys(ctx, w) })
			if try++; again && try < searchTries {
				continue
			}
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		ended := q.learnKeys(w, t, looked, time.Since(began))
		if len(t.leases) > 0 || ended || time.Since(start) > keysBudget {
			return t.leases, nil
		}
	}
}

// nextOfKeys lists what an ordered claim would take.
func (q *Queue) nextOfKeys(ctx context.Context, w walk) (parts []suspects, err error) {
	for _, b := range w.branches {
		s := suspects{Pair: b.pairs[0].Pair, ordered: true}
		one := walk{branches: []keyBranch{b}, waiting: w.waiting}
		_, err := q.s.claim(ctx, q.s.sql.claimKeys, one.args(q.s.opt.BatchSize), q.butRefused(q.s.opt.Statement), func(rows pgx.Rows) error {
			var id int64
			var ord *int
			var key *string
			err := rows.Scan(nil, nil, &key, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, &id, &ord, nil, nil)
			if err != nil || ord != nil {
				return err
			}
			if s.ids = append(s.ids, id); key != nil && !slices.Contains(s.keys, *key) {
				s.keys = append(s.keys, *key)
			}
			return nil
		}, true)
		if err != nil {
			return nil, err
		}
		if len(s.ids) > 0 {
			parts = append(parts, s)
		}
	}
	return parts, nil
}

// planKeys asks the kinds that keep the order of keys for their part of a batch, as plan does for the others.
func (q *Queue) planKeys(gates map[Pair]Gate) (w walk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	var short, plenty []*kind
	for _, k := range q.rotated() {
		switch g := k.gate(gates); {
		case !k.order.Keys || !g.Open || now.Before(k.keys.rest):
		case now.Before(k.keys.steep) && len(k.keys.known.line) == 0 && (len(k.keys.waiting) == 0 || g.Max > 0):
		case k.keys.hot:
			plenty = append(plenty, k)
		default:
			short = append(short, k)
		}
	}
	q.divide(short, plenty, func(k *kind, most int) {
		g := k.gate(gates)
		b := keyBranch{
			kind: k, start: k.keys.after, most: min(most, k.fits(q.s.opt.BatchBytes)),
			keys: keysWalked * q.s.opt.BatchSize, run: q.s.opt.BatchSize, lacking: arrayLiteral(g.Lacking),
		}
		if g.Max > 0 {
			b.most = min(b.most, g.Max)
		}
		if k.order.Run > 0 {
			b.run = min(b.run, k.order.Run)
		}
		b.heads = max(1, int(float64(b.most)/max(k.keys.depth, 1)))
		if len(k.keys.known.line) > 0 && now.Before(k.keys.walk) || now.Before(k.keys.steep) {
			b.keys, b.known = 0, k.keys.known.take(b.heads)
		}
		for id := range k.keys.waiting {
			if len(w.waiting)+len(b.waiting) == q.s.opt.BatchSize || g.Max > 0 {
				break
			}
			b.waiting = append(b.waiting, id)
			delete(k.keys.waiting, id) // if the claim leaves it out, a sweep finds it again
		}
		w.waiting = append(w.waiting, b.waiting...)
		w.branches = append(w.branches, b)
	})
	return w
}

// gate is what may be claimed of a kind whatever the priority: keys don't know priorities.
func (k *kind) gate(gates map[Pair]Gate) Gate {
	for _, p := range k.pairs {
		if g := gates[p.Pair]; g.Open {
			return g
		}
	}
	return Gate{}
}

// takeKeys runs the ordered claim.
func (s *Store) takeKeys(ctx context.Context, w walk, rows int, a among) (t taken, looked []walked, err error) {
	if slices.ContainsFunc(w.branches, func(b keyBranch) bool { return b.keys > 0 }) {
		a.within = min(a.within, walkMost)
	}
	t, err = s.claim(ctx, s.sql.claimKeys, w.args(rows), a, func(rows pgx.Rows) error {
		var ord, n, opened int
		var key string
		if err := rows.Scan(nil, nil, &key, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, &ord, &n, &opened); err != nil {
			return err
		}
		looked = append(looked, walked{&w.branches[ord-1], key, n, opened})
		return nil
	}, false)
	return t, looked, err
}

// args are the statement's parameters $1 to $13.
func (w *walk) args(rows int) []any {
	n := len(w.branches)
	kinds, starts, closes, lacking := make([]string, n), make([]string, n), make([]bool, n), make([]string, n)
	most, keys, heads, run := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	var knownOrd []int32
	var knownKeys []string
	var knownAbove []int64
	for i, b := range w.branches {
		kinds[i], starts[i], closes[i], lacking[i] = b.name, b.start, !b.order.Skip, b.lacking
		most[i], keys[i], heads[i], run[i] = int32(b.most), int32(b.keys), int32(b.heads), int32(b.run)
		for _, k := range b.known {
			knownOrd, knownKeys, knownAbove = append(knownOrd, int32(i+1)), append(knownKeys, k.key), append(knownAbove, k.above)
		}
	}
	return []any{kinds, starts, closes, most, keys, heads, run, lacking, knownOrd, knownKeys, knownAbove, w.waiting, int32(rows)}
}

// learnKeys remembers where the walks ended. It says whether all keys were looked at since they began at the first.
func (q *Queue) learnKeys(w walk, t taken, looked []walked, took time.Duration) (ended bool) {
	got := map[Pair]int{}
	for i := range t.leases {
		got[Pair{t.leases[i].Kind, t.leases[i].Priority}]++
	}
	bytes := sizes(t.leases)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.weigh(bytes)
	n := 0
	for at, n := range got {
		if p := q.find(at); p != nil {
			p.taken += n
		}
	}
	ended = true
	through := map[*kind]bool{} // walked to the last key
	for _, b := range w.branches {
		through[b.kind] = true
	}
	for _, l := range looked {
		k := &l.branch.kind.keys
		k.deepen(l, bytes[l.branch.name].rows)
		if l.branch.keys > 0 {
			through[l.branch.kind] = l.keys < l.branch.keys && l.opened < l.branch.heads
			k.after, k.hot = l.last, l.opened >= l.branch.heads
			n += l.keys
		}
	}
	costly, now := took > keysCheap && (n >= keysMany || q.held), time.Now()
	for _, b := range w.branches {
		k := &b.kind.keys
		if len(b.waiting) > 0 && t.locked < q.s.opt.BatchSize && !slices.ContainsFunc(t.leases, func(l Lease) bool { return slices.Contains(b.waiting, l.ID) }) {
			k.fruitless = now
		}
		if b.keys == 0 { // nothing was walked
			if ended = false; bytes[b.name].rows == 0 {
				k.walk = now
			}
			continue
		}
		k.walk = now.Add(max(walksEvery, walksFraction*took))
		k.steepRest = 0
		if !through[b.kind] {
			ended = false
			continue
		}
		k.after, k.hot = "", false
		ended = ended && b.start == ""
		if len(t.leases) == 0 && costly {
			k.rest = now.Add(min(keysFraction*took, keysRest))
		}
	}
	return ended
}

// giveUpKeys is what a walk teaches that was cut off: none is made for a while. The keys of due jobs that
// sweeps find are looked at meanwhile, each by itself. False: there was no walk.
func (q *Queue) giveUpKeys(w walk) (changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range w.branches {
		if k := &b.kind.keys; b.keys > 0 {
			k.steepRest = min(max(2*k.steepRest, steepLeast), steepMost)
			k.steep = time.Now().Add(k.steepRest)
			k.after, changed = "", true
		}
	}
	return changed
}

// served notes the keys of which all that was claimed is done: their next jobs need no walk. What was claimed of a key
// began with its oldest unfinished job, so nothing is unfinished before what comes now. Called under mu, and only when
// it is known which leases were lost.
func (q *Queue) served(outcomes []Outcome, lost []int64) {
	type name struct {
		kind *kind
		key  string
	}
	last, stuck := map[name]int64{}, map[name]bool{}
	for _, o := range outcomes {
		k := q.kinds[o.Lease.Kind]
		if k == nil || !k.order.Keys || o.Lease.Key == nil {
			continue
		}
		at := name{k, *o.Lease.Key}
		last[at] = max(last[at], o.Lease.ID)
		stuck[at] = stuck[at] || o.Verdict != Done || slices.Contains(lost, o.Lease.ID) || o.Late
	}
	for at, id := range last {
		if !stuck[at] {
			at.kind.keys.known.add(at.key, id+1, keysWalked*q.s.opt.BatchSize)
		}
	}
}
