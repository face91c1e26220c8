package claim

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// A claim takes of each key a run from its oldest job on; nothing more of it while that run is out.
func TestKeysAreClaimedInRuns(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := keyed(t, db, 10, "", "a", "b")
	q := ordered(t, db, Options{BatchSize: 9}, Order{})
	first := claim(t, q)
	for key, got := range byKey(first) {
		if want := ids[key][:3]; !slices.Equal(got, want) {
			t.Errorf("key %q: claimed %v, want %v", key, got, want)
		}
	}
	if more := claim(t, ordered(t, db, Options{}, Order{})); len(more) > 0 {
		t.Errorf("another process claimed %v", byKey(more))
	}
	settle(t, q, first, Outcome{Verdict: Done})
	for key, got := range byKey(claim(t, q)) {
		if want := ids[key][3:6]; !slices.Equal(got, want) {
			t.Errorf("key %q: then claimed %v, want %v", key, got, want)
		}
	}
}

// A run ends before a job that can't be claimed with it.
func TestRunEndsBeforeAGap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sql string }{
		{"scheduled", `UPDATE jobs SET run_at = now() + interval '1 hour' WHERE id = $1`},
		{"claimed", `UPDATE jobs SET status = 'running', lease_token = 1, leased_until = now() + interval '1 hour' WHERE id = $1`},
		{"delivered where it is open", `UPDATE jobs SET delivered = '{open}' WHERE id = $1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ids := keyed(t, db, 5, "a")["a"]
			db.Exec(t, c.sql, ids[2])
			leases, err := ordered(t, db, Options{}, Order{}).Claim(t.Context(), func(Pair) Gate { return Gate{Open: true, Lacking: []string{"open"}} })
			if err != nil {
				t.Fatal(err)
			}
			if got := byKey(leases)["a"]; !slices.Equal(got, ids[:2]) {
				t.Errorf("claimed %v, want %v", got, ids[:2])
			}
		})
	}
}

// A row that somebody holds at the moment ends the run too, and isn't waited for.
func TestRunEndsBeforeALockedRow(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := keyed(t, db, 5, "a", "b")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT FROM jobs WHERE id = ANY ($1) FOR UPDATE`, []int64{ids["a"][1], ids["b"][0]}); err != nil {
		t.Fatal(err)
	}
	got := byKey(claim(t, ordered(t, db, Options{}, Order{})))
	if !slices.Equal(got["a"], ids["a"][:1]) || len(got["b"]) > 0 {
		t.Errorf("claimed %v of %v", got, ids)
	}
}

// The bounds of a batch cut runs at their ends, so that what is taken of each key has no gap.
func TestBoundsCutRunsAtTheirEnds(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"rows":  {BatchSize: 7},
		"bytes": {BatchBytes: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', 'key' || g % 3, to_jsonb(repeat('x', 1000 * (1 + g % 5))) FROM generate_series(1, 60) g`)
			ids := map[string][]int64{}
			for i := range 3 {
				key := fmt.Sprint("key", i)
				ids[key] = testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE key = $1 ORDER BY id`, key)
			}
			q := ordered(t, db, o, Order{})
			for all := 0; all < 60; {
				leases := claim(t, q)
				bytes := 0
				for i := range leases {
					bytes += leases[i].Size()
				}
				if len(leases) == 0 || o.BatchSize > 0 && len(leases) > o.BatchSize || o.BatchBytes > 0 && bytes > int(o.BatchBytes) {
					t.Fatalf("%d jobs of %d bytes", len(leases), bytes)
				}
				for key, got := range byKey(leases) {
					if want := ids[key][:len(got)]; !slices.Equal(got, want) {
						t.Errorf("%s: claimed %v, want %v", key, got, want)
					}
					ids[key] = ids[key][len(got):]
				}
				settle(t, q, leases, Outcome{Verdict: Done})
				all += len(leases)
			}
		})
	}
}

// Run bounds how much of one key is out at once.
func TestRunIsBounded(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := keyed(t, db, 20, "a")["a"]
	if got := byKey(claim(t, ordered(t, db, Options{}, Order{Run: 7})))["a"]; !slices.Equal(got, ids[:7]) {
		t.Errorf("claimed %v, want the first 7 of %v", got, ids)
	}
}
