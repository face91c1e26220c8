package claim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// toOne replays to the destination b of jobs that go to a and b.
func toOne(name string, again bool) Replay {
	return Replay{Name: name, Again: again, Filter: ReplayFilter{Destination: "b"}, Others: func(kind string) ([]string, error) {
		if kind != "k0" {
			return nil, fmt.Errorf("kind %q doesn't go to b", kind)
		}
		return []string{"a", `c"{,}\`}, nil
	}}
}

// A destination gets what it hasn't had, the others get nothing, and the originals know afterwards.
func TestReplayToADestination(t *testing.T) {
	t.Parallel()
	for _, deleting := range []bool{false, true} {
		t.Run(fmt.Sprint("deleting ", deleting), func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			s := newStore(t, db, Options{DeleteDone: deleting})
			db.Exec(t, `INSERT INTO relay_kinds VALUES ('k0', 100), ('k1', 100);
				INSERT INTO jobs (kind, payload, status, delivered) SELECT 'k0', '1', 'done', CASE g % 3 WHEN 0 THEN '{a}'::text[] WHEN 1 THEN '{a,b}' END FROM generate_series(1, 30) g`)
			q := s.Queue(every)
			if done := replay(t, s, toOne("n", false)); done.Copied != 20 || done.Had != 10 || done.Skipped() != 10 {
				t.Errorf("%+v", done)
			}
			for leases := claim(t, q); len(leases) > 0; leases = claim(t, q) {
				for _, l := range leases {
					if !slices.Equal(l.Delivered, []string{"a", `c"{,}\`}) {
						t.Fatalf("a copy begins with %q", l.Delivered)
					}
				}
				if lost := settle(t, q, leases, Outcome{Verdict: Done, Delivered: []string{"b"}}); len(lost) > 0 {
					t.Fatalf("lost %v", lost)
				}
			}
			if got := testdb.Column[string](t, db, `SELECT DISTINCT coalesce(delivered::text, '') FROM jobs WHERE replay_of IS NULL ORDER BY 1`); !slices.Equal(got, []string{"{a,b}", "{b}"}) {
				t.Errorf("the originals were delivered to %q", got)
			}
			if done := replay(t, s, toOne("another", false)); done.Copied != 0 || done.Had != 30 {
				t.Errorf("after it was filled: %+v", done)
			}
			if done := replay(t, s, toOne("another", true)); done.Copied != 30 || done.Had != 0 {
				t.Errorf("again: %+v", done)
			}
			db.Exec(t, `INSERT INTO jobs (kind, payload, status) VALUES ('k1', '1', 'done')`)
			if _, err := s.Replay(t.Context(), toOne("other", false)); err == nil || !strings.Contains(err.Error(), "doesn't go to b") {
				t.Errorf("a kind that doesn't go there: %v", err)
			}
		})
	}
}

// An original learns what its copy brought somewhere with any verdict, and only from the one who holds the claim.
func TestCopiesTellTheirOriginals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		out    Outcome
		others string // done to the copy before it is settled
		want   string
	}{
		{"done", Outcome{Verdict: Done, Delivered: []string{"b"}}, "", "{a,b}"},
		{"done, nothing new", Outcome{Verdict: Done, Delivered: []string{"a"}}, "", "{a}"},
		{"retry", Outcome{Verdict: Retry, Delivered: []string{"b"}, Error: "x"}, "", "{a,b}"},
		{"dead", Outcome{Verdict: Dead, Delivered: []string{"c", "b"}, Error: "x"}, "", "{a,b,c}"},
		{"released", Outcome{}, "", "{a}"},
		{"reaped", Outcome{Verdict: Done, Delivered: []string{"b"}}, `UPDATE jobs SET status = 'ready', leased_until = NULL WHERE replay_of IS NOT NULL`, "{a,b}"},
		{"reaped, too late for a retry", Outcome{Verdict: Retry, Delivered: []string{"b"}}, `UPDATE jobs SET status = 'ready', leased_until = NULL WHERE replay_of IS NOT NULL`, "{a}"},
		{"claimed by another", Outcome{Verdict: Done, Delivered: []string{"b"}}, `UPDATE jobs SET lease_token = 5 WHERE replay_of IS NOT NULL`, "{a}"},
		{"the original in a new round", Outcome{Verdict: Done, Delivered: []string{"b"}}, `UPDATE jobs SET status = 'dead' WHERE replay_of IS NULL`, "{a}"},
		{"the original gone", Outcome{Verdict: Done, Delivered: []string{"b"}}, `DELETE FROM jobs WHERE replay_of IS NULL`, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			for _, o := range []Options{{}, {DeleteDone: true}} {
				q := newQueue(t, db, o)
				db.Exec(t, `TRUNCATE jobs; INSERT INTO jobs (kind, payload, status, delivered) VALUES ('k', '1', 'done', '{a}');
					INSERT INTO jobs (kind, payload, replay_of) SELECT 'k', '1', id FROM jobs`)
				l := claimOne(t, q)
				if c.others != "" {
					db.Exec(t, c.others)
				}
				settle(t, q, []Lease{*l}, c.out)
				if got := testdb.One[string](t, db, `SELECT coalesce((SELECT delivered::text FROM jobs WHERE replay_of IS NULL), 'none')`); got != c.want {
					t.Errorf("%+v: the original was delivered to %s, want %s", o, got, c.want)
				}
			}
		})
	}
}

// Two copies of one job settled together both tell it.
func TestCopiesOfOneJobTellItTogether(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	db.Exec(t, `INSERT INTO jobs (kind, payload, status) VALUES ('k', '1', 'done');
		INSERT INTO jobs (kind, payload, replay_of) SELECT 'k', '1', id FROM jobs, generate_series(1, 2)`)
	leases := claim(t, q)
	outcomes := []Outcome{{Lease: &leases[0], Verdict: Done, Delivered: []string{"x"}}, {Lease: &leases[1], Verdict: Done, Delivered: []string{"y", "x"}}}
	if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if got := testdb.One[string](t, db, `SELECT delivered::text FROM jobs WHERE replay_of IS NULL`); got != "{x,y}" {
		t.Errorf("delivered to %s", got)
	}
}

// Jobs that aren't copies cost a settlement nothing.
func TestOrdinarySettlementsHaveNoFurtherStatement(t *testing.T) {
	t.Parallel()
	s := &Store{}
	if got := s.arrived([]Outcome{{Lease: &Lease{ID: 1}, Verdict: Done, Delivered: []string{"a"}}}); got != nil {
		t.Errorf("%v", got)
	}
}
