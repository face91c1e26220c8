package claim

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/testdb"
)

// The three ways to find jobs find the same, also when many finished at one instant.
func TestReplayWalks(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 3000)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, finished_at) SELECT 'k' || g % 2, '1', 'done', now() - interval '1 hour' FROM generate_series(1, 25000) g;
		UPDATE jobs SET delivered = '{d}' WHERE id % 7 = 0 AND status = 'done'`)
	want := chosen(t, db, "kind = 'k1' AND id % 7 > 0 AND id > 100")
	for name, c := range map[string]struct {
		most int
		ids  []int64
		end  bool
	}{"gathered": {gatherMost, nil, true}, "along the primary key": {10, nil, false}, "named": {0, append([]int64{1 << 40}, want...), true}} {
		f := ReplayFilter{Kind: "k1", Destination: "d", Until: Moment{Time: time.Now()}, IDs: c.ids}
		w := replayWalk{s: s, filter: f, most: c.most, position: 100}
		if err := w.begin(t.Context()); err != nil || w.end != c.end {
			t.Fatalf("%s: %v, complete %v", name, err, w.end)
		}
		var got []int64
		for {
			batch, err := w.next(t.Context(), 333, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(batch) == 0 {
				break
			}
			for _, f := range batch {
				got = append(got, f.id)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d jobs, want %d", name, len(got), len(want))
		}
		if c.ids == nil && w.had != int64(len(chosen(t, db, "kind = 'k1' AND id % 7 = 0 AND id > 100"))) {
			t.Errorf("%s: %d passed over", name, w.had)
		}
	}
}

// More jobs than a slice can hold finished at one instant.
func TestReplayOfOneInstant(t *testing.T) {
	t.Parallel()
	db, s := newHistory(t, 10)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, finished_at) SELECT 'k0', '1', 'done', now() - interval '1 hour' FROM generate_series(1, $1::int) g`, walkRowsMost+10)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status) SELECT 'k0', '1', 'ready' FROM generate_series(1, 100) g`)
	done := replay(t, s, Replay{DryRun: true, Filter: ReplayFilter{Kind: "k0"}})
	if done.Copied != walkRowsMost+10+5 {
		t.Errorf("found %d", done.Copied)
	}
}

// A replay to a destination, by filter and by id, works the same in every exec mode, on each server.
func TestReplayInEveryExecMode(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, newDB func(testing.TB) *testdb.DB) {
		for _, mode := range modes {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				db := newDB(t)
				db.Exec(t, history, 40)
				db.Exec(t, `INSERT INTO relay_kinds VALUES ('k0', 100)`)
				s := storeOn(t, poolWith(t, db, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), Options{Table: db.Table})
				r := toOne("n", false)
				r.Filter.Kind, r.Filter.Key, r.Filter.Since = "k0", text("key4"), ago(48*time.Hour)
				if done := replay(t, s, r); done.Copied != 4 {
					t.Errorf("%+v", done)
				}
				leases := claim(t, s.Queue(every))
				if len(leases) != 4 || leases[0].Delivered[1] != `c"{,}\` {
					t.Fatalf("%+v", leases)
				}
				settle(t, s.Queue(every), leases, Outcome{Verdict: Done, Delivered: []string{"b"}})
				r.Name, r.Filter.IDs = "ids", chosen(t, db, "key = 'key4' AND replay_of IS NULL")
				if done := replay(t, s, r); done.Had != 4 {
					t.Errorf("by id: %+v", done)
				}
			})
		}
	})
}
