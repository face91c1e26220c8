package claim

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Claim takes due jobs for one worker: at most BatchSize rows and BatchBytes bytes, kinds sharing fairly, the larger
// priority first within a kind, sorted by id. Of a kind that keeps the order of its keys it takes runs: the oldest
// unfinished jobs of a key without a gap, and nothing of a key whose oldest is held, not due, or behind a closed one.
//
// A row that Postgres refuses to let be claimed is named in the log and left out for a while; of an ordered kind it holds
// its key, and nothing else.
//
// gate is asked once per known pair. No rows and no error: nothing is due as far as the floors tell; the sweep covers
// the rest. It is one round trip and one short transaction, two where there are kinds of both sorts. After an error
// nothing is claimed, or what was claimed ends with its lease.
func (q *Queue) Claim(ctx context.Context, gate func(Pair) Gate) ([]Lease, error) {
	if err := q.discover(ctx); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	gates := q.ask(gate)
	if leases, err := q.search(ctx, gates); err != nil || len(leases) > 0 {
		return leases, err
	}
	walks := []func(context.Context, map[Pair]Gate) ([]Lease, error){q.claimPairs, q.claimKeys}
	if rand.IntN(2) == 0 { // neither sort of kinds is always first
		slices.Reverse(walks)
	}
	for _, walk := range walks {
		leases, err := walk(ctx, gates)
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		if len(leases) > 0 {
			slices.SortFunc(leases, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
			return leases, nil
		}
	}
	return nil, nil
}

// claimPairs walks the pending index.
func (q *Queue) claimPairs(ctx context.Context, gates map[Pair]Gate) ([]Lease, error) {
	for try := 0; ; {
		p := q.plan(gates)
		if len(p.branches) == 0 {
			return nil, nil
		}
		start := time.Now()
		t, err := q.s.claim(ctx, q.s.sql.claim, p.args(), q.butRefused(p.most), nil)
		if cutOff(err) && (p.most < q.s.claimBound() || p.blind()) && q.giveUp(p, t.at) {
			continue // what is new is claimed at once, the rest once a sweep has found it
		}
		if refusesClaim(err) {
			again, err := q.suspect(err, func() ([]suspects, error) { return q.nextOfPairs(ctx, p) })
			if cutOff(err) && q.giveUp(p, t.at) {
				continue
			}
			if try++; again && try < searchTries {
				continue
			}
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		q.learn(p, t, time.Since(start))
		// Empty although pairs were left out: they were behind one that had plenty and has no more.
		if len(t.leases) > 0 || !p.partial {
			return t.leases, nil
		}
	}
}

// nextOfPairs lists what a claim would take.
func (q *Queue) nextOfPairs(ctx context.Context, p plan) (parts []suspects, err error) {
	without := q.refused.ids()
	for _, b := range p.branches {
		s := suspects{Pair: b.Pair}
		args := []any{b.Kind, b.Priority, b.floor.timestamp(), b.floor.id, b.to.moment(), int32(b.most), b.lacking, b.keyless, without}
		err := q.s.read(ctx, q.s.sql.claimNext, args, func(rows pgx.Rows) (err error) {
			s.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(s.ids) > 0 {
			parts = append(parts, s)
		}
	}
	return parts, nil
}

// ask calls gate for each pair, without holding the lock: gate belongs to the caller.
func (q *Queue) ask(gate func(Pair) Gate) map[Pair]Gate {
	q.mu.Lock()
	pairs := q.all()
	q.mu.Unlock()
	gates := make(map[Pair]Gate, len(pairs))
	for _, p := range pairs {
		if !q.refused.rests(p.Kind) {
			gates[p.Pair] = gate(p.Pair)
		}
	}
	return gates
}

// taken is what a claim brought.
type taken struct {
	leases []Lease
	at     point // the database's clock
	locked int   // rows that were locked: more than leases when the bytes cut the batch
}

// among bounds a claim to some jobs.
type among struct {
	ids    []int64       // nil: any job
	only   bool          // these ids, else all but these
	within time.Duration // bound of the statement
}

// butRefused is any job but those that are refused.
func (q *Queue) butRefused(within time.Duration) among {
	return among{ids: q.refused.ids(), within: min(within, q.s.claimBound())}
}

// claimBound leaves time to look for the row because of which a claim takes as long.
func (s *Store) claimBound() time.Duration { return max(s.opt.Statement/2, time.Millisecond) }

// claim runs one of the two claims. It isn't sent again when the connection breaks: nobody knows whether it took
// anything. looked is called for the rows that aren't jobs; it comes with the parameters that follow those of every claim.
// After a claim that was cut off at its bound the clock is still known.
func (s *Store) claim(ctx context.Context, sql string, args []any, a among, looked func(pgx.Rows) error, further ...any) (taken, error) {
	token, err := newToken()
	if err != nil {
		return taken{}, err
	}
	var t taken
	until := time.Now().Add(s.opt.Lease)
	args = append(args, s.opt.BatchBytes, s.opt.Lease.Microseconds(), token, a.ids, a.only)
	args = append(args, further...)
	err = s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claimSettings, s.bound(a.within)).QueryRow(func(row pgx.Row) error {
			var at time.Time
			err := row.Scan(&at, nil)
			t.at = pointAt(at)
			return err
		})
		b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
			t.leases, t.locked, err = readLeases(rows, token, until, looked)
			return err
		})
	})
	if err != nil {
		return taken{at: t.at}, err
	}
	return t, nil
}

// newToken draws the proof of one claim: 63 random bits are never drawn twice, and ask nothing of the database.
func newToken() (int64, error) {
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("token: %w", err)
	}
	token := int64(binary.BigEndian.Uint64(b[:]) >> 1)
	if token == 0 {
		return 0, errors.New("token: no randomness")
	}
	return token, nil
}

// learn moves the floors after a claim. Only what lies before the end of the walk was looked at whole: the walk ends at
// the last branch that gave rows when the batch was full or its bytes were cut.
func (q *Queue) learn(p plan, t taken, took time.Duration) {
	got, last := p.tally(t.leases)
	bytes := sizes(t.leases)
	end, now := len(p.branches), time.Now()
	cut := t.locked >= p.rows || t.locked > len(t.leases)
	if cut {
		for end > 0 && got[end-1] == 0 {
			end--
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, b := range p.branches[:end] {
		horizon := t.at.back(q.lag(b.pair))
		if i == 0 || p.branches[i-1].pair != b.pair {
			b.pair.rewind(horizon)
			b.pair.hot = false
		}
		b.pair.taken += got[i]
		to := lower(b.to, horizon)
		if got[i] >= b.most || (cut || end < len(p.branches)) && i == end-1 {
			b.pair.hot = true
			to = lower(last[i], to)
		} else if b.to != top && got[i] == 0 {
			b.pair.fruitless = now
		}
		b.pair.passed(b, to)
	}
	for _, b := range p.branches {
		b.pair.asked = now
	}
	if p.most < q.s.opt.Statement && took < q.patience/4 {
		q.patience = max(q.patience/2, deepMost)
	}
	q.weigh(bytes)
}

// tally attributes the leases to the branches that brought them: how many, and the last place.
func (p *plan) tally(leases []Lease) (got []int, last []point) {
	got, last = make([]int, len(p.branches)), make([]point, len(p.branches))
	first := make(map[Pair]int, len(p.branches))
	for i := len(p.branches) - 1; i >= 0; i-- {
		first[p.branches[i].Pair] = i
	}
	for j := range leases {
		l := &leases[j]
		at := point{l.RunAt.UnixMicro(), l.ID}
		i := first[Pair{l.Kind, l.Priority}]
		for i+1 < len(p.branches) && p.branches[i+1].pair == p.branches[i].pair && p.branches[i].to.less(at) {
			i++
		}
		if got[i]++; got[i] == 1 || last[i].less(at) {
			last[i] = at
		}
	}
	return got, last
}

// blind: some part of what was asked has no beginning.
func (p *plan) blind() bool {
	return slices.ContainsFunc(p.branches, func(b branch) bool { return b.floor == bottom })
}

// giveUp is what a walk teaches that was cut off: what a held snapshot keeps of the drained jobs takes longer than that.
// Claims begin at the claim's time then, less the lag, and sweeps look for what lies below, in slices that end. Where a
// part of what was asked had no beginning, it gets the blame; else the database may be slow, and the next one gets more
// time. False: nothing was deep.
func (q *Queue) giveUp(p plan, at point) (changed bool) {
	if at == (point{}) {
		return false
	}
	blind := p.blind()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range p.branches {
		horizon := at.back(q.lag(b.pair))
		switch {
		case blind && b.floor != bottom:
		case b.to != top:
			changed = changed || len(b.pair.stretches) > 0
			b.pair.stretches = nil
		case b.floor.less(horizon.back(lagMost)):
			b.pair.raise(horizon, b.moved)
			b.pair.strip.suspect = true
			changed = true
		}
	}
	if changed && !blind {
		q.patience = min(2*q.patience, q.s.opt.Statement)
	}
	return changed
}

// weigh learns how large the jobs of each kind are. Called under mu.
func (q *Queue) weigh(bytes map[string]size) {
	for k, s := range bytes {
		if kind := q.kinds[k]; kind != nil {
			kind.size += (float64(s.bytes)/float64(s.rows) - kind.size) / 2
		}
	}
}

type size struct{ rows, bytes int }

// sizes sums the bytes by kind.
func sizes(leases []Lease) map[string]size {
	bytes := map[string]size{}
	for i := range leases {
		l := &leases[i]
		s := bytes[l.Kind]
		bytes[l.Kind] = size{s.rows + 1, s.bytes + l.Size()}
	}
	return bytes
}
