package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// KindStats says how a kind is divided between relays and others, who finished what of it lately, and what waits for
// whom.
type KindStats struct {
	Kind  string
	Share *Share // nil: no row, everything belongs to others

	At     time.Time // by the database's clock
	Since  time.Time // what finished from here on was counted
	Capped bool      // KindRows were reached, so Since is later than asked for
	Relay  SideStats
	Others SideStats

	ReadyCapped bool // KindRows unfinished jobs were looked at, there are more
}

// SideStats are the figures of one side.
type SideStats struct {
	Done, Dead int64
	Keys       int64     // distinct keys of those; a job without a key is one of its own
	Oldest     time.Time // when the first of Done finished; zero without any

	Ready            int64   // waiting jobs that this side owns
	OldestDueSeconds float64 // age of the oldest of them that is due
}

const (
	// KindRows bounds how many finished, and how many unfinished, jobs of a kind are looked at.
	KindRows = 10_000
	// kindsBudget ends the long looks: kinds that come later get a glance.
	kindsBudget = 10 * time.Second
)

// KindStats looks at each kind that has a row in relay_kinds or jobs, sorted by kind: at what finished within the window
// and since its share was changed. Its work is bounded per kind, in short statements.
func (s *Store) KindStats(ctx context.Context, window time.Duration) ([]KindStats, error) {
	known, err := s.knownKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("figures of kinds: %w", err)
	}
	var out []KindStats
	until := time.Now().Add(kindsBudget)
	for _, kind := range slices.Sorted(maps.Keys(known)) {
		k := KindStats{Kind: kind, Share: known[kind]}
		most := int32(KindRows)
		if time.Now().After(until) {
			most = glance
		}
		if err := s.finished(ctx, &k, window, most); err != nil {
			return nil, fmt.Errorf("figures of kind %q: %w", kind, err)
		}
		if err := s.waiting(ctx, &k, most); err != nil {
			return nil, fmt.Errorf("figures of kind %q: %w", kind, err)
		}
		out = append(out, k)
	}
	return out, nil
}

// knownKinds are those with a row, with unfinished and with finished jobs.
func (s *Store) knownKinds(ctx context.Context) (map[string]*Share, error) {
	known := map[string]*Share{}
	pairs, err := s.readPairs(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		known[p.Kind] = nil
	}
	err = s.read(ctx, s.sql.cleanKinds, nil, func(rows pgx.Rows) error {
		var kind string
		_, err := pgx.ForEachRow(rows, []any{&kind}, func() error { known[kind] = nil; return nil })
		return err
	})
	if err != nil {
		return nil, err
	}
	shares, err := s.Shares(ctx)
	for i := range shares {
		known[shares[i].Kind] = &shares[i]
	}
	return known, err
}

func (s *Store) finished(ctx context.Context, k *KindStats, window time.Duration, most int32) error {
	var changed pgtype.Timestamptz
	if k.Share != nil {
		changed = pgtype.Timestamptz{Time: k.Share.ChangedAt, Valid: true}
	}
	args := []any{k.Kind, window.Microseconds(), changed, most}
	return s.read(ctx, s.sql.kindFinished, args, func(rows pgx.Rows) error {
		var first, firstOther pgtype.Timestamptz
		_, err := pgx.ForEachRow(rows, []any{&k.At, &k.Since, &k.Capped, &k.Relay.Done, &k.Relay.Dead, &k.Relay.Keys, &first,
			&k.Others.Done, &k.Others.Dead, &k.Others.Keys, &firstOther}, func() error { return nil })
		k.Relay.Oldest, k.Others.Oldest = first.Time, firstOther.Time
		return err
	})
}

func (s *Store) waiting(ctx context.Context, k *KindStats, most int32) error {
	return s.read(ctx, s.sql.kindReady, []any{k.Kind, most}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&k.ReadyCapped, &k.Relay.Ready, &k.Relay.OldestDueSeconds,
			&k.Others.Ready, &k.Others.OldestDueSeconds}, func() error { return nil })
		return err
	})
}
