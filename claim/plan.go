package claim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// plan is what one claim asks for: branches for each pair, in the order in which they are walked.
type plan struct {
	branches []branch
	rows     int           // bound of the whole claim
	partial  bool          // pairs were left out behind a larger priority that has plenty
	most     time.Duration // bound of the statement: less where it may walk over all that was drained
}

type branch struct {
	*pair
	kind    *kind
	floor   point
	to      point
	moved   int
	most    int
	lacking string
}

// plan decides who gets how much. Kinds that came back short last time go first, each with its fair part of the batch,
// so that a backlog of one kind never hides another's few jobs; those with plenty share what is left. A kind that fills
// its part counts as having plenty from then on. Both groups rotate, since the batch may end before the last of them.
//
// Within a kind the larger priority goes first; while it has plenty the others wait.
func (q *Queue) plan(gates map[Pair]Gate) plan {
	q.mu.Lock()
	defer q.mu.Unlock()
	var short, plenty []*kind
	for _, k := range q.rotated() {
		switch open, hot := k.state(gates); {
		case !open:
		case hot:
			plenty = append(plenty, k)
		default:
			short = append(short, k)
		}
	}
	out := plan{rows: q.s.opt.BatchSize, most: q.s.opt.Statement}
	q.divide(short, plenty, func(k *kind, most int) { q.add(&out, k, gates, most) })
	return out
}

// divide calls add for each kind, in the order in which they are walked, with its part of a batch.
func (q *Queue) divide(short, plenty []*kind, add func(k *kind, most int)) {
	fair := share(q.s.opt.BatchSize, len(short)+len(plenty))
	for _, k := range short {
		add(k, fair)
	}
	part := share(q.s.opt.BatchSize, len(plenty))
	for _, k := range plenty {
		add(k, part)
	}
}

func share(rows, kinds int) int { return (rows + max(kinds, 1) - 1) / max(kinds, 1) }

// rotated lists the kinds from another start each time. By chance, not by count: workers of several lanes take turns.
func (q *Queue) rotated() []*kind {
	if len(q.list) == 0 {
		return nil
	}
	i := rand.IntN(len(q.list))
	return append(append(make([]*kind, 0, len(q.list)), q.list[i:]...), q.list[:i]...)
}

func (k *kind) state(gates map[Pair]Gate) (open, hot bool) {
	for _, p := range k.pairs {
		if gates[p.Pair].Open && !p.resting() {
			open, hot = true, hot || p.hot
		}
	}
	return open, hot
}

// add appends the kind's branches.
func (q *Queue) add(to *plan, k *kind, gates map[Pair]Gate, most int) {
	most = min(most, k.fits(q.s.opt.BatchBytes))
	for i, p := range k.pairs {
		g := gates[p.Pair]
		if !g.Open || p.resting() {
			continue
		}
		n := most
		if g.Max > 0 {
			n = min(n, g.Max)
		}
		p.lacking = arrayLiteral(g.Lacking)
		parts := p.parts()
		if g.Max > 0 {
			parts = parts[:1]
		}
		for _, s := range parts {
			to.branches = append(to.branches, branch{
				pair: p, kind: k, floor: s.from, to: s.to, moved: p.moved, most: n, lacking: p.lacking,
			})
		}
		if p.deep(time.Now()) {
			to.most = min(q.patience, q.s.opt.Statement)
		}
		if p.hot && g.Max == 0 && i < len(k.pairs)-1 {
			to.partial = true
			return
		}
	}
}

// resting: where jobs with a key are in the way of those without, a walk that found none of these isn't repeated at once.
func (p *pair) resting() bool { return p.keyless && !p.hot && time.Since(p.asked) < keylessRest }

// keylessRest is how much later a job without a key may be claimed when its kind keeps the order of keys.
const keylessRest = 100 * time.Millisecond

// fits is how many rows of the kind to lock: a little more than the bytes allow, by the sizes seen.
func (k *kind) fits(bytes int64) int {
	return int(min(float64(bytes)/max(k.size, 1)*5/4, 1<<20)) + 1
}

// args are the statement's parameters $1 to $9.
func (p *plan) args() []any {
	n := len(p.branches)
	kinds, priorities := make([]string, n), make([]int16, n)
	at, ids := make([]pgtype.Timestamptz, n), make([]int64, n)
	most, lacking, keyless := make([]int32, n), make([]string, n), make([]bool, n)
	to := make([]pgtype.Timestamptz, n)
	for i, b := range p.branches {
		kinds[i], priorities[i] = b.Kind, b.Priority
		at[i], ids[i] = b.floor.timestamp(), b.floor.id
		most[i], lacking[i], keyless[i], to[i] = int32(b.most), b.lacking, b.keyless, b.to.moment()
	}
	return []any{kinds, priorities, at, ids, most, lacking, keyless, to, int32(p.rows)}
}

// arrayLiteral writes a text[] as Postgres reads it; "" for an empty one. Arrays of arrays can't differ in length, so
// a list of lists travels as a list of literals.
func arrayLiteral(list []string) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	for i, s := range list {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(inArray.Replace(s))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// inArray escapes what has a meaning between quotes. It is made once: building it costs more than all else of a job.
var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
