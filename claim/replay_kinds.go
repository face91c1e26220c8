package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// meet looks at kinds when the run first comes to them: whether relays own them whole, where their copies don't go, and
// which copies an interrupted run has left.
func (run *replayRun) meet(ctx context.Context, kinds []string) error {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { _, known := run.kinds[kind]; return known })
	if len(kinds) == 0 {
		return nil
	}
	if err := run.s.owned(ctx, kinds); err != nil {
		return err
	}
	for _, kind := range kinds {
		var others []string
		if run.at.filter.Destination != "" {
			var err error
			if others, err = run.r.Others(kind); err != nil {
				return err
			}
		}
		run.kinds[kind] = arrayLiteral(others)
	}
	if run.r.DryRun {
		return nil
	}
	return run.window.recover(ctx, kinds)
}

// owned refuses kinds that relays don't own whole: their copies would fall to old workers, or to nobody.
func (s *Store) owned(ctx context.Context, kinds []string) error {
	shares := map[string]int{}
	err := s.patiently(ctx, s.sql.kinds, nil, func(rows pgx.Rows) error {
		var kind string
		var share int
		_, err := pgx.ForEachRow(rows, []any{&kind, &share}, func() error { shares[kind] = share; return nil })
		return err
	})
	if err != nil {
		return err
	}
	var why []string
	for _, kind := range kinds {
		switch share, ok := shares[kind]; {
		case !ok:
			why = append(why, fmt.Sprintf("no relay has ever claimed the kind %q: run a relay with a route for it, or choose others by --kind", kind))
		case share != 100:
			why = append(why, fmt.Sprintf("relays own %d %% of the kind %q, and a replay needs all of it: relay kinds set %s 100", share, kind, kind))
		}
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, "; "))
	}
	return nil
}
