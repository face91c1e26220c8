package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/migrations"
)

// remedies say what an operator can do about an error of the database, by its SQLSTATE.
var remedies = map[string]string{
	"28P01": "check the user and password of the database URL",
	"28000": "the server refuses this user, database or host: check the database URL and the server's pg_hba.conf",
	"3D000": "create the database, or correct its name in the database URL",
	"42501": "grant the relay's user what it needs: relay check lists it",
	"42P01": "run relay migrate up",
	"42703": "run relay migrate up",
	"42883": "run relay migrate up",
	"3F000": "run relay migrate up",
}

// poolerRemedies are for poolers, which report all their refusals, and those of the server behind, under one code.
var poolerRemedies = []struct {
	words *regexp.Regexp
	what  string
}{
	{regexp.MustCompile(`authentication failed|no such user|role ".*" does not exist`), remedies["28P01"]},
	{regexp.MustCompile(`no such database|database ".*" does not exist`), remedies["3D000"]},
}

// remedy is what an operator can do, "" when the error says so itself; known is false when nobody needs to do
// anything but wait.
func remedy(err error) (what string, known bool) {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, migrations.ErrNotMigrated), errors.Is(err, migrations.ErrNoOrderIndex):
		return "RELAY_MIGRATE=true has relay run do it", true
	case errors.Is(err, migrations.ErrPooled):
		return "give RELAY_LISTEN_URL the URL of one: migrations use it", true
	case errors.Is(err, migrations.ErrTooNew), errors.Is(err, migrations.ErrNotAdoptable), errors.Is(err, migrations.ErrNameTaken),
		errors.Is(err, ops.ErrOldPostgres):
		return "", true
	case !errors.As(err, &pg):
		return "", false
	case pg.Code == "08P01":
		for _, r := range poolerRemedies {
			if r.words.MatchString(pg.Message) {
				return r.what, true
			}
		}
	}
	what, known = remedies[pg.Code]
	return what, known
}

// explain adds the remedy to an error.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if what, _ := remedy(err); what != "" {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}

// passes says whether an error may go away by itself: the start waits for it.
func passes(err error) bool {
	_, known := remedy(err)
	return !known
}

const questionTimeout = 10 * time.Second

// usable says why the database can't be used now, or nil.
func usable(ctx context.Context, db *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	server, err := ops.LookAt(ctx, db)
	if err != nil {
		return err
	}
	return server.Usable()
}
