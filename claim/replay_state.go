package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// replayPatience is how long a run that has begun waits for a database that has gone away.
const replayPatience = time.Minute

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

// begin finds the replay's row or makes it, and refuses what isn't the same replay.
func (run *replayRun) begin(ctx context.Context) error {
	now, at, err := run.s.replayState(ctx, run.s.read, run.r.Name)
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
	_, at, err := run.s.replayState(ctx, run.s.patiently, run.r.Name)
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

// reading is read or patiently.
type reading func(ctx context.Context, sql string, args []any, rows func(pgx.Rows) error) error

// replayState reads a replay's row, nil when there is none, and the database's time.
func (s *Store) replayState(ctx context.Context, read reading, name string) (now time.Time, at *progress, err error) {
	err = read(ctx, s.sql.replay.state, []any{name}, func(rows pgx.Rows) error {
		at = nil
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

// durable runs a transaction, and waits a while for a database that has gone away.
func (run *replayRun) durable(ctx context.Context, queue func(*pgx.Batch)) (unsure bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, replayPatience, errPatience)
	defer cancel()
	return run.s.persist(ctx, func(b *pgx.Batch) {
		b.Queue(run.s.sql.settleSettings, run.s.timeout(), "on")
		queue(b)
	})
}

// patiently is read for what has begun: it waits a while for a database that has gone away. rows may be called again.
func (s *Store) patiently(ctx context.Context, sql string, args []any, rows func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, replayPatience, errPatience)
	defer cancel()
	_, err := s.persist(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claimSettings, s.timeout())
		b.Queue(sql, args...).Query(rows)
	})
	return err
}

var errPatience = fmt.Errorf("the database was away for %v", replayPatience)

// reread finds out why a batch didn't move the replay on, and goes on from where it is now.
func (run *replayRun) reread(ctx context.Context, kinds []string, unsure bool) error {
	_, at, err := run.s.replayState(ctx, run.s.patiently, run.r.Name)
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
	_, at, err := run.s.replayState(ctx, run.s.patiently, run.r.Name)
	if err == nil && at != nil && at.finished && at.started.Equal(run.at.started) {
		run.at.copied = at.copied
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, run.reread(ctx, nil, unsure)
}
