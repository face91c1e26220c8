package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// A replay has two seconds' worth of copies unfinished at most, within these bounds.
	windowLeast = 100
	windowMost  = 5000
	// recoverRows is how many unfinished jobs of a kind are looked at for copies of an interrupted run.
	recoverRows = 10_000
	// askLeast and askMost are the pauses between two questions whether copies have finished.
	askLeast, askMost = 50 * time.Millisecond, time.Second
	// tellAfter is how long relays may send nothing before the log says so.
	tellAfter = 30 * time.Second
)

// replayWindow bounds the unfinished copies: when relays don't keep up, a replay waits instead of piling up work. It
// knows its copies by id, so asking is a few lookups, and only when the window is full.
type replayWindow struct {
	s    *Store
	most int
	open []int64 // copies that were unfinished when last asked
}

func (w *replayWindow) add(copies []int64) { w.open = append(w.open, copies...) }

// recover takes over the copies that an interrupted run has left, kind by kind.
func (w *replayWindow) recover(ctx context.Context, kinds []string) error {
	for _, kind := range kinds {
		if len(w.open) >= windowMost {
			return nil
		}
		var left []int64
		err := w.s.patiently(ctx, w.s.sql.replay.waiting, []any{kind, int32(recoverRows)}, func(rows pgx.Rows) (err error) {
			left, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err != nil {
			return err
		}
		w.open = append(w.open, left[:min(len(left), windowMost)]...)
	}
	return nil
}

// room waits until n more copies fit.
func (w *replayWindow) room(ctx context.Context, n int, waiting func(open int)) error {
	moved, told := time.Now(), false
	for wait := askLeast; len(w.open) > 0 && len(w.open)+n > w.most; wait = min(2*wait, askMost) {
		before := len(w.open)
		if err := w.ask(ctx); err != nil {
			return err
		}
		if len(w.open) < before {
			moved, wait = time.Now(), askLeast
		}
		if len(w.open) == 0 || len(w.open)+n <= w.most {
			return nil
		}
		waiting(len(w.open))
		if time.Since(moved) > tellAfter && !told {
			told = true
			w.s.opt.Log.Warn("the replay waits: relays send none of its copies", "unfinished", len(w.open))
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// ask forgets the copies that have finished.
func (w *replayWindow) ask(ctx context.Context) error {
	var left []int64
	err := w.s.patiently(ctx, w.s.sql.replay.left, []any{w.open}, func(rows pgx.Rows) (err error) {
		left, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err == nil {
		w.open = left
	}
	return err
}
