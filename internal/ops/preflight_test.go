package ops

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

func preflight(t *testing.T, db *testdb.DB) Preflight {
	t.Helper()
	store, err := claim.New(db.Pool, claim.Options{Table: db.Table})
	if err != nil {
		t.Fatal(err)
	}
	return Preflight{DB: db.Pool, Store: store, Table: db.Table}
}

// expect wants the findings' levels, in order, and words in all their texts together.
func expect(t *testing.T, found []Finding, levels string, words ...string) {
	t.Helper()
	var got, text []string
	for _, f := range found {
		got, text = append(got, string(f.Level)), append(text, f.Subject+": "+f.Text)
	}
	if strings.Join(got, " ") != levels {
		t.Errorf("levels %v, want %s: %v", got, levels, text)
	}
	for _, w := range words {
		if !strings.Contains(strings.Join(text, "\n"), w) {
			t.Errorf("no %q in %v", w, text)
		}
	}
}

func TestPreflightOfGoodDatabase(t *testing.T) {
	t.Parallel()
	p := preflight(t, testdb.New(t))
	found, err := p.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, "ok", "PostgreSQL")
	expect(t, p.Privileges(t.Context()), "ok")
	expect(t, p.Plan(t.Context()), "ok", "pending")
}

func TestServerThatCantBeUsed(t *testing.T) {
	t.Parallel()
	for want, s := range map[error]Server{
		nil:            {Number: 150000, Version: "15.0"},
		ErrOldPostgres: {Number: 140019, Version: "14.19"},
		ErrReadOnly:    {Number: 180000, ReadOnly: true},
	} {
		if got := s.Usable(); !errors.Is(got, want) {
			t.Errorf("%+v: got %v, want %v", s, got, want)
		}
	}
}

func TestPreflightOfReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	p := preflight(t, db)
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	if p.DB, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	defer p.DB.Close()
	if _, err := p.Server(t.Context()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("got %v, want %v", err, ErrReadOnly)
	}
}

// What a pooler means depends on how LISTEN goes past it.
func TestPreflightBehindAPooler(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	config, err := pgxpool.ParseConfig(db.Bouncer(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for listen, want := range map[Listening][2]string{
		ListenAlong:  {"ok warn", "give RELAY_LISTEN_URL a direct connection"},
		ListenDirect: {"ok ok", "LISTEN and migrations don't"},
		ListenOff:    {"ok ok", "relay migrate wants a direct connection"},
	} {
		found, err := Preflight{DB: pool, Table: db.Table, Listen: listen}.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, found, want[0], want[1])
	}
}

// weakly is a preflight of a role that has been granted nothing but what is said.
func weakly(t *testing.T, db *testdb.DB, grants string) Preflight {
	t.Helper()
	role := pgx.Identifier{db.Schema + "_weak"}.Sanitize()
	db.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'weak'; GRANT USAGE ON SCHEMA "+db.Schema+" TO "+role+"; "+strings.ReplaceAll(grants, "weak", role))
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.User, config.ConnConfig.Password = db.Schema+"_weak", "weak"
	p := preflight(t, db)
	if p.DB, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.DB.Close()
		if _, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPreflightNamesMissingPrivileges(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	found := weakly(t, db, "GRANT SELECT, INSERT ON "+db.Table+" TO weak").Privileges(t.Context())
	expect(t, found, "fail warn", "UPDATE on jobs", "DELETE on jobs", "SELECT on relay_kinds", "UPDATE on relay_kinds (relay kinds set)")
	for _, has := range []string{"INSERT on jobs", "sequence"} { // an identity's needs no right
		if strings.Contains(found[0].Text+found[1].Text, has) {
			t.Errorf("names what the role has, or doesn't need, %s: %v", has, found)
		}
	}
}

// Whoever inserts into a table with id bigserial takes the next value of its sequence.
func TestPreflightNamesASequence(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	db.Exec(t, `CREATE TABLE jobs (id bigserial PRIMARY KEY, kind text NOT NULL, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'ready',
		run_at timestamptz NOT NULL DEFAULT now(), attempts integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 5,
		leased_until timestamptz, last_error text)`)
	db.Migrate(t, migrations.Options{})
	p := weakly(t, db, "GRANT ALL ON ALL TABLES IN SCHEMA "+db.Schema+" TO weak")
	expect(t, p.Privileges(t.Context()), "warn", "USAGE of the sequence jobs_id_seq (relay enqueue, relay replay)")
	db.Exec(t, "GRANT USAGE ON SEQUENCE jobs_id_seq TO "+pgx.Identifier{db.Schema + "_weak"}.Sanitize())
	expect(t, p.Privileges(t.Context()), "ok")
}

func TestPreflightOfClaimPlan(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p := preflight(t, db)
	expect(t, p.Plan(t.Context()), "ok", "claims walk the index jobs_pending_idx")
	db.Exec(t, "DROP INDEX jobs_pending_idx")
	expect(t, p.Plan(t.Context()), "warn", "jobs_pending_idx")
}
