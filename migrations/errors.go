package migrations

import "errors"

var (
	// ErrNotMigrated says that the table doesn't exist, or lacks steps that this version needs.
	ErrNotMigrated = errors.New("the schema is not migrated")
	// ErrNoOrderIndex says that a route keeps the order of keys, but the index for it was left out or isn't whole.
	ErrNoOrderIndex = errors.New("the index for the order of keys is missing")
	// ErrNameTaken says that something else has the name of an index that the relay needs; nothing was changed.
	ErrNameTaken = errors.New("the name of an index is taken")
	// ErrTooNew says that the schema comes from a newer version that no longer supports this one.
	ErrTooNew = errors.New("the schema is too new")
	// ErrNotAdoptable says that the table that exists can't be taken over as it is; nothing was changed.
	ErrNotAdoptable = errors.New("the table can't be adopted")
	// ErrWouldLoseData says that a step down would lose rows or values, and DropData wasn't set; nothing was changed.
	ErrWouldLoseData = errors.New("data would be lost")
	// ErrBusy says that other sessions held the table for too long; what was done so far stays, and Up goes on from there.
	ErrBusy = errors.New("the table is busy")
	// ErrPooled says that the connection leads through a pooler that gives a session to others after each transaction; a
	// migration needs sessions of its own. Nothing was changed.
	ErrPooled = errors.New("the connection leads through a pooler in transaction mode, and a migration needs a direct one")
)
