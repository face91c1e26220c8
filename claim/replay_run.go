package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// batchMost bounds a batch, so that no transaction is long.
	batchMost = 500
	// replayPatience is how long a batch waits for a database that has gone away.
	replayPatience = time.Minute
	// shakes bounds how often a batch is tried when its place doesn't move and nothing says why.
	shakes = 5
)

// progress is the row of a replay.
type progress struct {
	filter   ReplayFilter
	again    bool
	position int64 // last id that was copied
	copied   int64
	started  time.Time
	finished bool
}

// replayFilters is how a row keeps the filter.
type replayFilters struct {
	ReplayFilter
	Again bool `json:"again,omitempty"`
}

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

// begin finds the replay's row or makes it, and refuses what isn't the same replay.
func (run *replayRun) begin(ctx context.Context) error {
	now, at, err := run.s.replayState(ctx, run.r.Name)
	if err != nil {
		return err
	}
	fresh := at == nil || at.finished && run.r.Again
	if at != nil {
		if err := run.same(at); err != nil {
			return err
		}
	}
	if fresh {
		f := run.r.Filter
		if f.Until.Time.IsZero() || f.Until.Time.After(now) {
			f.Until.Time = now // what is done from now on isn't history yet
		}
		next := &progress{filter: f, again: run.r.Again}
		if run.r.DryRun {
			at = next
		} else if at, err = run.insert(ctx, next, at); err != nil {
			return err
		}
	}
	run.at, run.done.InAll = *at, at.copied
	run.walk = replayWalk{s: run.s, filter: at.filter, again: at.again, most: gatherMost, position: at.position}
	return nil
}

// same refuses a row that isn't this replay, or that doesn't go on.
func (run *replayRun) same(at *progress) error {
	if diff := at.filter.differences(run.r.Filter); len(diff) > 0 {
		return fmt.Errorf("it was begun with another filter: %s; choose another --name, or give the same filter", strings.Join(diff, ", "))
	}
	switch {
	case at.finished && !run.r.Again:
		return fmt.Errorf("it is finished, with %d copied; --again runs it again", at.copied)
	case !at.finished && run.r.Again && !at.again:
		return errors.New("it isn't finished: without --again it goes on, then --again runs it again")
	}
	return nil
}

// insert writes the row of a run that begins; of two processes both get the one that came first.
func (run *replayRun) insert(ctx context.Context, next, before *progress) (*progress, error) {
	text, err := json.Marshal(replayFilters{next.filter, next.again})
	if err != nil {
		return nil, fmt.Errorf("write the filter: %w", err)
	}
	var replaces pgtype.Timestamptz
	if before != nil {
		replaces = pgtype.Timestamptz{Time: before.started, Valid: true}
	}
	err = run.s.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(run.s.sql.settleSettings, run.s.timeout(), "on")
		b.Queue(run.s.sql.replay.begin, run.r.Name, string(text), replaces)
	})
	if err != nil {
		return nil, err
	}
	_, at, err := run.s.replayState(ctx, run.r.Name)
	switch {
	case err != nil:
		return nil, err
	case at == nil:
		return nil, errGone
	}
	return at, run.same(at)
}

// errGone: somebody has deleted the row.
var errGone = errors.New("its row in relay_replays has gone")

// replayState reads a replay's row, nil when there is none, and the database's time.
func (s *Store) replayState(ctx context.Context, name string) (now time.Time, at *progress, err error) {
	err = s.read(ctx, s.sql.replay.state, []any{name}, func(rows pgx.Rows) error {
		var text *string
		var position, copied *int64
		var started, finished pgtype.Timestamptz
		_, err := pgx.ForEachRow(rows, []any{&now, &text, &position, &copied, &started, &finished}, func() error {
			if text == nil {
				return nil
			}
			var f replayFilters
			if err := json.Unmarshal([]byte(*text), &f); err != nil {
				return fmt.Errorf("read the filters: %w", err)
			}
			at = &progress{f.ReplayFilter, f.Again, *position, *copied, started.Time, finished.Valid}
			return nil
		})
		return err
	})
	return now, at, err
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
		if stuck == shakes {
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

// durable runs a transaction, and waits a while for a database that has gone away.
func (run *replayRun) durable(ctx context.Context, queue func(*pgx.Batch)) (unsure bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, replayPatience, errPatience)
	defer cancel()
	return run.s.persist(ctx, func(b *pgx.Batch) {
		b.Queue(run.s.sql.settleSettings, run.s.timeout(), "on")
		queue(b)
	})
}

var errPatience = fmt.Errorf("the database was away for %v", replayPatience)

// reread finds out why a batch didn't move the replay on, and goes on from where it is now.
func (run *replayRun) reread(ctx context.Context, kinds []string, unsure bool) error {
	_, at, err := run.s.replayState(ctx, run.r.Name)
	switch {
	case err != nil:
		return err
	case at == nil:
		return errGone
	case !at.started.Equal(run.at.started):
		return errors.New("another process has begun it again")
	case at.finished, at.position != run.at.position:
		if unsure { // it was this process, and the answer got lost
			run.done.Copied += at.copied - run.at.copied
		}
		run.at.position, run.at.copied = at.position, at.copied
		run.walk.backTo(at.position)
		return nil
	}
	return run.s.owned(ctx, kinds)
}

// finish marks the replay as finished; false when it has moved on meanwhile.
func (run *replayRun) finish(ctx context.Context) (done bool, err error) {
	unsure, err := run.durable(ctx, func(b *pgx.Batch) {
		done = false
		b.Queue(run.s.sql.replay.finish, run.r.Name, run.at.started, run.at.position).Query(func(rows pgx.Rows) error {
			done = rows.Next()
			rows.Close()
			return rows.Err()
		})
	})
	if err != nil || done {
		return done, err
	}
	_, at, err := run.s.replayState(ctx, run.r.Name)
	if err == nil && at != nil && at.finished && at.started.Equal(run.at.started) {
		run.at.copied = at.copied
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, run.reread(ctx, nil, unsure)
}

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
	err := s.read(ctx, s.sql.kinds, nil, func(rows pgx.Rows) error {
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
