package claim

import (
	"context"
	"maps"
	"slices"
	"time"
)

// look is a dry run: it goes past everything that would be copied.
func (run *replayRun) look(ctx context.Context) error {
	kinds := map[string]*ReplayKind{}
	defer func() {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			run.done.Kinds = append(run.done.Kinds, *kinds[kind])
		}
	}()
	for n := run.size(); ; n = run.size() {
		batch, err := run.walk.next(ctx, n, func(f found) {
			kind := run.walk.kinds[f.kind]
			if kinds[kind] == nil {
				kinds[kind] = &ReplayKind{Kind: kind}
			}
			kinds[kind].add(f)
		})
		if len(batch) == 0 || err != nil {
			return err
		}
		if err := run.meet(ctx, run.walk.kindsOf(batch)); err != nil {
			return err
		}
		run.done.Copied += int64(len(batch))
	}
}

func (k *ReplayKind) add(f found) {
	if f.size == passedOver {
		k.Had++
		return
	}
	at := time.UnixMicro(f.at).UTC()
	if k.Jobs == 0 {
		k.FirstID, k.First, k.Last = f.id, at, at
	}
	k.Jobs++
	k.LastID = f.id
	if at.Before(k.First) {
		k.First = at
	}
	if at.After(k.Last) {
		k.Last = at
	}
}
