package claim

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long a pair is remembered after its last job, how often new ones are looked for, and how much of the time that
// may take.
const (
	pairsKept     = 10 * time.Minute
	pairsEvery    = time.Second
	pairsSeldom   = 10 * time.Second
	pairsFraction = 20
	// pairsMost bounds the skip scan at first; each time that it was cut off it gets twice as long, up to pairsLongest.
	pairsMost    = time.Second
	pairsLongest = 4 * time.Second
	// newestJobs is how many of the newest jobs are asked for their pairs instead.
	newestJobs = 10_000
)

// discover looks for pairs and writes the rows of new kinds, unless that was done lately. The first claim does it, then
// sweeps do.
func (q *Queue) discover(ctx context.Context) error {
	q.mu.Lock()
	known := q.discovered
	q.mu.Unlock()
	if known {
		return nil
	}
	q.sweeping.Lock()
	defer q.sweeping.Unlock()
	if !q.sweeper.pairsRead.IsZero() {
		return nil
	}
	return q.refresh(ctx)
}

// refresh reads the pairs when it is time, and the shares. Called under sweeping.
func (q *Queue) refresh(ctx context.Context) error {
	if time.Since(q.sweeper.pairsRead) >= q.sweeper.pairsPause {
		if err := q.readPairs(ctx); err != nil {
			return err
		}
	}
	return q.readShares(ctx)
}

// readPairs looks for pairs. Where a held snapshot makes that slow it is done less often.
func (q *Queue) readPairs(ctx context.Context) error {
	start, w := time.Now(), &q.sweeper
	found, err := q.scanPairs(ctx)
	if err != nil && !cutOff(err) {
		return err
	}
	found = slices.DeleteFunc(found, func(p Pair) bool { return !q.serves(p.Kind) })
	w.pairsRead = time.Now()
	w.pairsPause = min(max(pairsFraction*time.Since(start), pairsEvery*9/10), pairsSeldom*9/10)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range found {
		q.know(p).seen = w.pairsRead
	}
	if !w.pairsLate {
		q.forget(w.pairsRead.Add(-pairsKept))
	}
	return nil
}

// scanPairs runs the skip scan. Where it doesn't end in time the newest jobs tell what is new, and it is tried again
// later.
func (q *Queue) scanPairs(ctx context.Context) ([]Pair, error) {
	start, w := time.Now(), &q.sweeper
	if !start.Before(w.pairsNext) {
		w.pairsMost = max(w.pairsMost, pairsMost)
		found, err := q.s.pairs(ctx, w.pairsMost)
		if w.pairsLate = cutOff(err); !w.pairsLate {
			return found, err
		}
		w.pairsMost = min(2*w.pairsMost, pairsLongest)
		w.pairsNext = time.Now().Add(pairsFraction * time.Since(start))
	}
	return q.s.newestPairs(ctx)
}

// newestPairs are those of the newest jobs, with an error those that it met before that.
func (s *Store) newestPairs(ctx context.Context) (found []Pair, err error) {
	seen := map[Pair]bool{}
	err = s.readWithin(ctx, pairsMost, s.sql.pairsNewest, []any{int32(newestJobs)}, func(rows pgx.Rows) error {
		for rows.Next() {
			var p Pair
			if err := rows.Scan(&p.Kind, &p.Priority); err != nil {
				return err
			}
			if !seen[p] {
				seen[p] = true
				found = append(found, p)
			}
		}
		return rows.Err()
	})
	return found, err
}

// readPairs runs the skip scan.
func (s *Store) readPairs(ctx context.Context) ([]Pair, error) {
	return s.pairs(ctx, s.opt.Statement)
}

func (s *Store) pairs(ctx context.Context, most time.Duration) (found []Pair, err error) {
	err = s.readWithin(ctx, most, s.sql.pairs, nil, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Pair])
		return err
	})
	return found, err
}

// forget drops the pairs that haven't been seen for long. Called under mu.
func (q *Queue) forget(since time.Time) {
	q.list = slices.DeleteFunc(q.list, func(k *kind) bool {
		k.pairs = slices.DeleteFunc(k.pairs, func(p *pair) bool { return !p.pinned && p.seen.Before(since) })
		if len(k.pairs) == 0 {
			delete(q.kinds, k.name)
		}
		return len(k.pairs) == 0
	})
}

// readShares writes the row of each new kind, and clears the floors of kinds whose share has changed: jobs that were
// stepped over may be ours now.
func (q *Queue) readShares(ctx context.Context) error {
	shares, err := q.s.shares(ctx)
	if err != nil {
		return err
	}
	q.mu.Lock()
	var missing []string
	if q.sweeper.pairsLate { // a kind that had jobs before may have more
		for name := range shares {
			if q.kinds[name] == nil && q.serves(name) {
				q.know(Pair{Kind: name}).seen = time.Now()
			}
		}
	}
	for _, k := range q.list {
		if _, ok := shares[k.name]; !ok {
			missing = append(missing, k.name)
		}
	}
	q.mu.Unlock()
	if len(missing) > 0 {
		if err := q.register(ctx, missing); err != nil {
			return err
		}
		if shares, err = q.s.shares(ctx); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range q.list {
		if now := shares[k.name]; now != k.share {
			k.share = now
			k.reset()
		}
	}
	q.discovered = true
	return nil
}

func (s *Store) shares(ctx context.Context) (map[string]int, error) {
	shares := map[string]int{}
	err := s.read(ctx, s.sql.kinds, nil, func(rows pgx.Rows) error {
		var name string
		var share int
		_, err := pgx.ForEachRow(rows, []any{&name, &share}, func() error { shares[name] = share; return nil })
		return err
	})
	return shares, err
}

// register writes rows for kinds that have none.
func (q *Queue) register(ctx context.Context, kinds []string) error {
	shares := make([]int16, len(kinds))
	for i, k := range kinds {
		shares[i] = int16(min(max(q.shareOf(k), 0), 100))
	}
	return q.s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(q.s.sql.settleSettings, q.s.timeout(), "on")
		b.Queue(q.s.sql.register, kinds, shares)
	})
}
