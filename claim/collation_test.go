package claim

import (
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// An adopted table may sort its kinds and keys by any collation for which equal texts are the same bytes: every claim, and
// what people do with dead jobs and closed keys, works as it does with the database's own.
func TestAnyDeterministicCollation(t *testing.T) {
	onEach(t, func(t *testing.T, newDB func(testing.TB) *testdb.DB) {
		for name, collations := range map[string][2]string{
			"key C":     {`"default"`, `"C"`},
			"both C":    {`"C"`, `"C"`},
			"two":       {`"C"`, `"und-x-icu"`},
			"an own":    {`"default"`, `upper`},
			"POSIX, en": {`"POSIX"`, `"en-x-icu"`},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := collated(t, newDB(t), collations)
				walksAllKeys(t, db)
				closesAndReopens(t, db)
				comparesByIndex(t, db)
			})
		}
	})
}

// collated adopts a table whose columns kind and key have these collations, in place of the one that there is.
func collated(t *testing.T, db *testdb.DB, c [2]string) *testdb.DB {
	t.Helper()
	for range 6 {
		if err := migrations.Down(t.Context(), db.Config, migrations.Options{Table: db.Table, DropData: true}); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `CREATE COLLATION upper (provider = icu, locale = 'und-u-kf-upper')`)
	db.Exec(t, `CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text COLLATE `+c[0]+` NOT NULL, payload jsonb NOT NULL,
    status text NOT NULL DEFAULT 'ready', run_at timestamptz NOT NULL DEFAULT now(), attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 5, leased_until timestamptz, last_error text, key text COLLATE `+c[1]+`)`)
	db.Migrate(t, migrations.Options{})
	return db
}

// sorted is sorted differently by each collation.
var sorted = []string{"a", "A", "b", "B", "ä", "z", "Z", "é", "e", "E", "-a", "_b", " a", "ab", "a b", "Ab", "", "ö", "1", "10", "2", "日本"}

func walksAllKeys(t *testing.T, db *testdb.DB) {
	t.Helper()
	for range 2 {
		for _, kind := range []string{"k", "ä"} {
			db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT $1, u, '1' FROM unnest($2::text[]) u`, kind, sorted)
			db.Exec(t, `INSERT INTO jobs (kind, payload) VALUES ($1, '1')`, kind)
		}
	}
	q := ordered(t, db, Options{BatchSize: 20}, Order{})
	if ids := drain(t, q); len(ids) != 2*2*(len(sorted)+1) {
		t.Errorf("ordered claims brought %d jobs, want %d", len(ids), 2*2*(len(sorted)+1))
	}
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', u, '1' FROM unnest($1::text[]) u`, sorted)
	if ids := drain(t, newQueue(t, db, Options{BatchSize: 20})); len(ids) != len(sorted) {
		t.Errorf("claims brought %d jobs, want %d", len(ids), len(sorted))
	}
}

// closesAndReopens lets a job of each key die; what waits behind them comes when the key is opened: by a requeue, by hand,
// and when the dead job is removed, which one that holds its key isn't.
func closesAndReopens(t *testing.T, db *testdb.DB) {
	t.Helper()
	db.Exec(t, `DELETE FROM jobs`)
	q := ordered(t, db, Options{BatchSize: 100}, Order{})
	keyed(t, db, 1, sorted...)
	settle(t, q, claim(t, q), Outcome{Verdict: Dead, Error: "no"})
	keyed(t, db, 1, sorted...)
	if got := drain(t, q); len(got) != 0 {
		t.Errorf("closed keys let %d jobs through", len(got))
	}
	ctx, s := t.Context(), newStore(t, db, Options{})
	list := func() (keys []string, err error) {
		err = s.ListClosedKeys(ctx, KeyFilter{}, func(k ClosedKey) error { keys = append(keys, k.Key); return nil })
		return keys, err
	}
	keys, err := list()
	if err != nil || len(keys) != len(sorted) {
		t.Fatalf("%d closed keys, %v, want %d", len(keys), err, len(sorted))
	}
	if f, err := s.Figures(ctx); err != nil || len(f.Kinds) == 0 {
		t.Errorf("figures %+v, %v", f, err)
	}
	if _, err := s.ReopenKey(ctx, "k", "é", LeaveDead, false); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, q); len(got) != 1 {
		t.Errorf("after é was reopened: %d jobs, want 1", len(got))
	}
	db.Exec(t, `UPDATE jobs SET status = 'ready', attempts = 0 WHERE status = 'dead' AND key = 'a'`)
	if got := drain(t, q); len(got) != 2 {
		t.Errorf("after a requeue by hand: %d jobs, want 2", len(got))
	}
	db.Exec(t, `UPDATE jobs SET finished_at = now() - interval '1 day' WHERE status = 'dead'`)
	for _, c := range []struct {
		by   *Queue
		left int
	}{{q, len(sorted) - 2}, {newQueue(t, db, Options{}), 0}} {
		if _, err := c.by.Clean(ctx, time.Hour, time.Hour); err != nil {
			t.Fatal(err)
		}
		if keys, err := list(); err != nil || len(keys) != c.left {
			t.Errorf("after retention: closed keys %v, %v; want %d", keys, err, c.left)
		}
	}
}

// comparesByIndex: what is compared has one collation, so that indexes serve it.
func comparesByIndex(t *testing.T, db *testdb.DB) {
	t.Helper()
	got := testdb.Column[string](t, db, `SELECT DISTINCT attname || ' ' || attcollation::regcollation FROM pg_attribute
WHERE attrelid IN ('jobs'::regclass, 'relay_kinds'::regclass, 'relay_closed_keys'::regclass) AND attname IN ('kind', 'key') ORDER BY 1`)
	if len(got) != 2 || slices.Contains(got, "") {
		t.Errorf("collations: %q, want one for kind and one for key", got)
	}
}
