package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Filter chooses dead jobs; empty fields match everything.
type Filter struct {
	Kind, Key    string
	HasKey       bool   // Key is meant, also when it is ""
	Error        string // part of last_error
	Since, Until time.Time
	IDs          []int64
	Limit        int // 0: no limit
	Rate         int // of a change: at most so many a second, evenly; 0: no bound
}

// DeadJob is a dead job as an operator sees it.
type DeadJob struct {
	ID          int64
	Kind        string
	Key         *string
	Attempts    int
	MaxAttempts int
	LastError   string
	CreatedAt   time.Time // zero when NULL
	FinishedAt  time.Time
	Delivered   []string
	ReplayOf    *int64 // the job that it is a copy of, made by replay
	Headers     []byte // only with Get
	Payload     []byte // only with Get
	Body        []byte // only with Get
}

// deadRows is how many jobs a statement looks at or changes.
const deadRows = 1000

// ListDead calls each for the dead jobs that match, oldest id first. An error that each returns ends it and is returned.
func (s *Store) ListDead(ctx context.Context, f Filter, each func(DeadJob) error) error {
	left := f.Limit
	err := s.deadPages(ctx, f, func(page []DeadJob) error {
		for _, d := range page {
			if err := each(d); err != nil {
				return err
			}
			if left--; left == 0 {
				return errEnough
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("list dead jobs: %w", err)
	}
	return nil
}

// errEnough ends a walk over pages.
var errEnough = errors.New("enough")

// deadPages calls each with the matching jobs of one page after another.
func (s *Store) deadPages(ctx context.Context, f Filter, each func([]DeadJob) error) error {
	if len(f.IDs) > 0 {
		return s.deadByID(ctx, f, each)
	}
	kinds := []string{f.Kind}
	if f.Kind == "" {
		var err error
		if kinds, err = s.deadKinds(ctx); err != nil {
			return err
		}
	}
	for last, n := int64(0), deadRows; n == deadRows; {
		args := append([]any{kinds, last}, f.args()...)
		var page []DeadJob
		err := s.read(ctx, s.sql.deadPage, append(args, int32(deadRows)), func(rows pgx.Rows) (err error) {
			page, n, last, err = readDead(rows)
			return err
		})
		if err != nil {
			return err
		}
		if err := each(page); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deadByID(ctx context.Context, f Filter, each func([]DeadJob) error) error {
	ids := slices.Compact(slices.Sorted(slices.Values(f.IDs)))
	for some := range slices.Chunk(ids, deadRows) {
		var page []DeadJob
		err := s.read(ctx, s.sql.deadByID, append([]any{some, f.Kind}, f.args()...), func(rows pgx.Rows) (err error) {
			page, _, _, err = readDead(rows)
			return err
		})
		if err != nil {
			return err
		}
		if err := each(page); err != nil {
			return err
		}
	}
	return nil
}

// args are the filters that both statements share.
func (f Filter) args() []any {
	var key *string
	if f.HasKey || f.Key != "" {
		key = &f.Key
	}
	return []any{key, f.Error, orNull(f.Since), orNull(f.Until)}
}

func orNull(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

// readDead reads a page, how many rows it looked at, and the last id of those.
func readDead(rows pgx.Rows) (page []DeadJob, n int, last int64, err error) {
	for rows.Next() {
		var id *int64
		var kind, text *string
		var attempts, most *int
		var created, finished pgtype.Timestamptz
		var d DeadJob
		if err := rows.Scan(&n, &last, &id, &kind, &d.Key, &attempts, &most, &text, &created, &finished, &d.Delivered, &d.ReplayOf); err != nil {
			return nil, 0, 0, err
		}
		if id == nil {
			continue
		}
		d.ID, d.Kind, d.Attempts, d.MaxAttempts = *id, *kind, *attempts, *most
		d.CreatedAt, d.FinishedAt = created.Time, finished.Time
		if text != nil {
			d.LastError = *text
		}
		page = append(page, d)
	}
	return page, n, last, rows.Err()
}

func (s *Store) deadKinds(ctx context.Context) (kinds []string, err error) {
	err = s.read(ctx, s.sql.deadKinds, nil, func(rows pgx.Rows) (err error) {
		kinds, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return kinds, err
}

// GetDead returns one dead job whole; false when there is none with this id.
func (s *Store) GetDead(ctx context.Context, id int64) (d DeadJob, ok bool, err error) {
	err = s.read(ctx, s.sql.deadGet, []any{id}, func(rows pgx.Rows) error {
		for rows.Next() {
			var text, headers, payload *string
			var created, finished pgtype.Timestamptz
			err := rows.Scan(&d.ID, &d.Kind, &d.Key, &d.Attempts, &d.MaxAttempts, &text, &created, &finished,
				&d.Delivered, &d.ReplayOf, &headers, &payload, &d.Body)
			if err != nil {
				return err
			}
			ok, d.CreatedAt, d.FinishedAt = true, created.Time, finished.Time
			d.Headers, d.Payload = bytesOf(headers), bytesOf(payload)
			if text != nil {
				d.LastError = *text
			}
		}
		return rows.Err()
	})
	if err != nil {
		return DeadJob{}, false, fmt.Errorf("get dead job %d: %w", id, err)
	}
	return d, ok, nil
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
