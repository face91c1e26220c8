package claim

import (
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// Where a key was just served its next job is looked up without a walk. That look finds what a walk would: nothing while
// an older job of the key is unfinished or closes it, whatever became of the last run.
func TestKnownKeyIsHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settle   [2]Outcome // of the run's two jobs
		before   string     // happens before they are settled; $1 and $2 are the run's jobs, $3 is the next
		after    string     // happens afterwards
		want     []int      // places of what is claimed then
		unwalked bool       // without a walk
	}{
		{name: "nothing", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, want: []int{2, 3}, unwalked: true},
		{name: "the first failed", settle: [2]Outcome{{Verdict: Retry, After: time.Hour, Error: "no"}, {Verdict: Release}}},
		{name: "the second failed", settle: [2]Outcome{{Verdict: Done}, {Verdict: Retry, After: time.Hour, Error: "no"}}},
		{name: "the second is dead", settle: [2]Outcome{{Verdict: Done}, {Verdict: Dead, Error: "no"}}},
		{name: "the second was given back", settle: [2]Outcome{{Verdict: Done}, {Verdict: Release}}, want: []int{1, 2}},
		{name: "the first is somebody else's now", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, before: `UPDATE jobs SET lease_token = 99 WHERE id = $1`},
		{name: "the next is claimed", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, after: `UPDATE jobs SET status = 'running', lease_token = 99 WHERE id = $3`, unwalked: true},
		{name: "the next is scheduled", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, after: `UPDATE jobs SET run_at = now() + interval '1 hour' WHERE id = $3`, unwalked: true},
		{name: "the next is dead", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, after: `UPDATE jobs SET status = 'dead' WHERE id = $3`, unwalked: true},
		{name: "the next is done", settle: [2]Outcome{{Verdict: Done}, {Verdict: Done}}, after: `UPDATE jobs SET status = 'done' WHERE id = $3`, want: []int{3, 4}, unwalked: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ids := keyed(t, db, 6, "a")["a"]
			q := ordered(t, db, Options{}, Order{Run: 2})
			leases := claim(t, q)
			if len(leases) != 2 {
				t.Fatalf("claimed %d, want a run of 2", len(leases))
			}
			exec := func(sql string) {
				if sql != "" {
					db.Exec(t, `WITH args AS (SELECT $1::bigint, $2::bigint, $3::bigint) `+sql, ids[0], ids[1], ids[2])
				}
			}
			exec(c.before)
			outcomes := []Outcome{c.settle[0], c.settle[1]}
			for i := range outcomes {
				outcomes[i].Lease = &leases[i]
			}
			if _, err := q.Settle(t.Context(), outcomes); err != nil {
				t.Fatal(err)
			}
			exec(c.after)
			if known := q.knows("a"); known != c.unwalked {
				t.Errorf("the key is known: %v, want %v", known, c.unwalked)
			}
			var got, want []int64
			for _, l := range claim(t, q) {
				got = append(got, l.ID)
			}
			for _, place := range c.want {
				want = append(want, ids[place])
			}
			if !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v of %v", got, want, ids)
			}
		})
	}
}

// knows says whether a claim would look at the key without a walk, and makes the next one do so.
func (q *Queue) knows(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := &q.kinds["k"].keys
	k.walk = time.Now().Add(time.Hour)
	_, known := k.known.above[key]
	return known
}

// Keys that old workers own are theirs, in order or not, and so are jobs without a key.
func TestKeysKeepToTheShare(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ('k', 25)`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, key) SELECT 'k', '1', CASE WHEN g % 5 > 0 THEN 'key' || g % 41 END FROM generate_series(1, 400) g`)
	want := testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE relay_owns(kind, key, id) ORDER BY id`)
	if got := drain(t, ordered(t, db, Options{}, Order{})); !slices.Equal(got, want) || len(want) < 20 || len(want) > 200 {
		t.Errorf("claimed %d, the relay owns %d of 400", len(got), len(want))
	}
}
