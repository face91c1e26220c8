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
		t, err := q.s.claim(ctx, q.s.sql.claim, p.args(), q.butRefused(), nil)
		if refusesClaim(err) {
			again, err := q.suspect(err, func() ([]suspects, error) { return q.nextOfPairs(ctx, p) })
			if try++; again && try < searchTries {
				continue
			}
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		q.learn(p, t)
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
		args := []any{b.Kind, b.Priority, b.floor.timestamp(), b.floor.id, int32(b.most), b.lacking, b.keyless, without}
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
func (q *Queue) butRefused() among { return among{ids: q.refused.ids(), within: q.s.claimBound()} }

// claimBound leaves time to look for the row because of which a claim takes as long.
func (s *Store) claimBound() time.Duration { return max(s.opt.Statement/2, time.Millisecond) }

// claim runs one of the two claims. It isn't sent again when the connection breaks: nobody knows whether it took
// anything. looked is called for the rows that aren't jobs; it comes with the parameters that follow those of every claim.
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
		b.Queue(s.sql.claimSettings, milliseconds(a.within)).QueryRow(func(row pgx.Row) error {
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
		return taken{}, err
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
// the last pair that gave rows when the batch was full or its bytes were cut.
func (q *Queue) learn(p plan, t taken) {
	got, last, bytes := tally(t.leases)
	end := len(p.branches)
	if t.locked >= p.rows || t.locked > len(t.leases) {
		for end > 0 && got[p.branches[end-1].Pair] == 0 {
			end--
		}
	}
	ended := end < len(p.branches) || t.locked >= p.rows || t.locked > len(t.leases)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, b := range p.branches[:end] {
		n := got[b.Pair]
		b.pair.taken += n
		horizon := t.at.back(q.lag(b.pair))
		b.pair.rewind(horizon)
		if n < b.most && !(ended && i == end-1) {
			b.pair.hot = false
			b.pair.raise(horizon, b.moved)
			continue
		}
		b.pair.hot = true
		b.pair.raise(lower(last[b.Pair], horizon), b.moved)
	}
	now := time.Now()
	for _, b := range p.branches {
		b.pair.asked = now
	}
	q.weigh(bytes)
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

// tally counts the leases by pair, finds the last place of each pair, and sums the bytes by kind.
func tally(leases []Lease) (got map[Pair]int, last map[Pair]point, bytes map[string]size) {
	got, last, bytes = map[Pair]int{}, map[Pair]point{}, map[string]size{}
	for i := range leases {
		l := &leases[i]
		at := Pair{l.Kind, l.Priority}
		got[at]++
		if p := (point{l.RunAt.UnixMicro(), l.ID}); got[at] == 1 || last[at].less(p) {
			last[at] = p
		}
		s := bytes[l.Kind]
		bytes[l.Kind] = size{s.rows + 1, s.bytes + l.Size()}
	}
	return got, last, bytes
}
