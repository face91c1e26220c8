package claim

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// batchMost bounds a batch, so that no transaction is long.
	batchMost = 500
	// stuckMost is how often a batch is tried while the replay's place doesn't move and nothing says why.
	stuckMost = 5
)

// replayRun is one process at work on a replay.
type replayRun struct {
	s      *Store
	r      Replay
	at     progress
	walk   replayWalk
	window replayWindow
	pace   pace
	kinds  map[string]string // met so far: what their copies begin with in delivered, as an array literal
	done   Replayed
}

func newReplayRun(s *Store, r Replay) *replayRun {
	run := &replayRun{s: s, r: r, pace: pace{rate: r.Rate}, kinds: map[string]string{}, done: Replayed{Name: r.Name}}
	run.window = replayWindow{s: s, most: min(max(2*r.Rate, windowLeast), windowMost)}
	return run
}

// all copies what is left, batch by batch.
func (run *replayRun) all(ctx context.Context) error {
	if err := run.walk.begin(ctx); err != nil {
		return err
	}
	run.done.Gone = run.walk.unknown
	if err := run.meet(ctx, run.walk.known()); err != nil {
		return err
	}
	if run.r.DryRun {
		return run.look(ctx)
	}
	for stuck := 0; ; {
		run.count()
		batch, err := run.walk.next(ctx, run.size(), nil)
		if err != nil {
			return err
		}
		before := run.at.position
		if len(batch) == 0 {
			if done, err := run.finish(ctx); done || err != nil {
				return err
			}
		} else if err := run.step(ctx, batch); err != nil {
			return err
		}
		if stuck++; run.at.position != before {
			stuck = 0
		}
		if stuck == stuckMost {
			return fmt.Errorf("no progress at job %d: somebody changes relay_replays or relay_kinds all the time", before)
		}
	}
}

// size is the length of the next batch; 0 when the limit is reached.
func (run *replayRun) size() int {
	n := run.pace.batch(batchMost)
	if run.r.DryRun {
		n = batchMost
	}
	if most := int64(run.at.filter.Limit); most > 0 {
		left := most - run.at.copied
		if run.r.DryRun {
			left -= run.done.Copied
		}
		n = int(min(int64(n), max(left, 0)))
	}
	return n
}

// step copies a batch when the relays and the rate allow it.
func (run *replayRun) step(ctx context.Context, batch []found) error {
	kinds := run.walk.kindsOf(batch)
	if err := run.meet(ctx, kinds); err != nil {
		return err
	}
	if err := run.window.room(ctx, len(batch), func(waiting int) {
		run.done.Waiting = waiting
		run.count()
	}); err != nil {
		return err
	}
	run.done.Waiting = 0
	if err := run.pace.wait(ctx, len(batch)); err != nil {
		return err
	}
	copies, moved, unsure, err := run.copy(ctx, batch, kinds)
	if err != nil {
		return err
	}
	if !moved {
		return run.reread(ctx, kinds, unsure)
	}
	run.window.add(copies)
	run.at.position = batch[len(batch)-1].id
	run.at.copied += int64(len(copies))
	run.done.Copied += int64(len(copies))
	run.done.Gone += int64(len(batch) - len(copies))
	return nil
}

// copy is one batch, in one transaction. moved is false when another process was quicker or a kind isn't the relays'
// any more; unsure says that an earlier try may have done it.
func (run *replayRun) copy(ctx context.Context, batch []found, kinds []string) (copies []int64, moved, unsure bool, err error) {
	chosen, begin, last := make([]int64, len(batch)), make([]string, len(kinds)), batch[len(batch)-1].id
	for i, f := range batch {
		chosen[i] = f.id
	}
	for i, kind := range kinds {
		begin[i] = run.kinds[kind]
	}
	unsure, err = run.durable(ctx, func(b *pgx.Batch) {
		moved = false
		b.Queue(run.s.sql.replay.copy, run.r.Name, run.at.started, run.at.position, last, chosen, kinds, begin, run.walk.missed()).
			QueryRow(func(row pgx.Row) error {
				var copied *int64
				err := row.Scan(&copied, &copies)
				moved = copied != nil
				return err
			})
		b.Queue(run.s.sql.replay.wake)
	})
	return copies, moved, unsure, err
}

// count brings the figures up to date and shows them.
func (run *replayRun) count() {
	run.done.InAll, run.done.Had, run.done.Total = run.at.copied, run.walk.had, run.walk.total
	if most := int64(run.at.filter.Limit); most > 0 && run.done.Total > 0 {
		run.done.Total = min(run.done.Total, most-run.at.copied+run.done.Copied)
	}
	if run.r.Progress != nil {
		run.r.Progress(run.done)
	}
}
