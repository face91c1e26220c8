package claim

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// errManyRefused ends a search that has named refusedAtOnce rows.
var errManyRefused = errors.New("enough rows were refused")

// halve runs try on the items. When Postgres refuses one of their rows, the halves are tried on their own, down to that
// one item, which refused is told: the others must not wait for it. Any other error ends it, as does one of refused.
func halve[T any](items []T, try func([]T) error, refused func(T, error) error) error {
	switch err := try(items); {
	case err == nil || !refusesRow(err):
		return err
	case len(items) == 1:
		return refused(items[0], err)
	}
	half := len(items) / 2
	if err := halve(items[:half], try, refused); err != nil {
		return err
	}
	return halve(items[half:], try, refused)
}

// refusesRow reports an error that comes from the data of some row: somebody's constraint or trigger, or a value that
// can't be read. Where names the function in which an error was raised, and only rows call functions of others.
func refusesRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "27", "38", "39", "44", "54", "P0", "XX":
		return true
	}
	return pg.Code == outOfMemory || pg.Where != "" && !passes(err)
}

// outOfMemory passes, unless it comes from a row that is too large.
const outOfMemory = "53200"

// refusedAtOnce bounds how many rows one search of halves names.
const refusedAtOnce = 16

// without runs try on the rows. Those that are refused are left out of what comes next, for a while, and the others are
// done.
func (q *Queue) without(ids []int64, try func([]int64) error) error {
	var bad []int64
	var cause error
	err := halve(ids, try, func(id int64, err error) error {
		bad, cause = append(bad, id), err
		if len(bad) == refusedAtOnce {
			return errManyRefused
		}
		return nil
	})
	if errors.Is(err, errManyRefused) {
		err = nil
	}
	if len(bad) > 0 {
		q.name(q.refused.add(bad, nil), cause)
	}
	return err
}
