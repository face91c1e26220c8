package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// witness is a sink that notes in which order it accepted the jobs of each key, and what it was given too early. Several
// sinks may share one, as the destinations of a fan-out.
type witness struct {
	mu    sync.Mutex
	have  map[string]map[string]bool // accepted: destination → message id
	seen  map[string][]string        // destination and key → ids in the order of their first acceptance
	early []string
	sent  int
	most  int               // the largest run of one key in one call
	order map[string]string // message id → the id before it of the same key
	ends  []string          // all destinations
}

// at is the witness's sink for one destination.
type at struct {
	*witness
	name string
	say  func(m sinks.Message) sinks.Outcome
}

func (s *at) Publish(_ context.Context, batch []sinks.Message, results []sinks.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, runs := map[string]bool{}, map[string]int{}
	for i, m := range batch {
		s.sent++
		key := fmt.Sprint(m.Kind, "/", *m.Key)
		if runs[key]++; runs[key] > s.most {
			s.most = runs[key]
		}
		if !m.Ordered {
			s.early = append(s.early, m.ID+" isn't marked as ordered")
		}
		if held[key] {
			results[i] = sinks.Result{Outcome: sinks.Unavailable, Err: errAway}
			continue
		}
		for _, end := range s.ends {
			if before := s.order[m.ID]; before != "" && !s.have[end][before] && runs[key] == 1 {
				s.early = append(s.early, fmt.Sprintf("%s came to %s before %s was at %s", m.ID, s.name, before, end))
			}
		}
		o := s.say(m)
		results[i] = sinks.Result{Outcome: o, Err: errAway}
		held[key] = o != sinks.Accepted
		if o == sinks.Accepted && !s.have[s.name][m.ID] {
			s.have[s.name][m.ID] = true
			s.seen[s.name+" "+key] = append(s.seen[s.name+" "+key], m.ID)
		}
	}
}

func (s *at) Check(context.Context, string) error { return nil }
func (s *at) Close(context.Context) error         { return nil }

// wholly is the same for a sink that is given runs.
type wholly struct{ *at }

func (wholly) KeepsOrder() {}

func newWitness(ends ...string) *witness {
	w := &witness{have: map[string]map[string]bool{}, seen: map[string][]string{}, order: map[string]string{}, ends: ends}
	for _, e := range ends {
		w.have[e] = map[string]bool{}
	}
	return w
}

// expect reads from the table which job of a key comes after which.
func (w *witness) expect(e *testdb.DB, t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pair := range testdb.Column[string](t, e, `SELECT id || ' ' || coalesce(lag(id) OVER (PARTITION BY kind, key ORDER BY id)::text, '') FROM `+e.Table) {
		id, before, _ := strings.Cut(pair, " ")
		if before != "" {
			w.order["test/"+id] = "test/" + before
		}
	}
}

// check says whether every destination got every job of every key, each key's in order.
func (w *witness) check(t *testing.T, db *testdb.DB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.early {
		t.Error(e)
	}
	want := map[string][]string{}
	for _, row := range testdb.Column[string](t, db, `SELECT kind || '/' || key || ' test/' || id FROM `+db.Table+` WHERE status <> 'dead' ORDER BY id`) {
		key, id, _ := strings.Cut(row, " ")
		want[key] = append(want[key], id)
	}
	for _, end := range w.ends {
		for key, ids := range want {
			if got := w.seen[end+" "+key]; strings.Join(got, " ") != strings.Join(ids, " ") {
				t.Errorf("%s of %s: first accepted %v, want %v", key, end, got, ids)
			}
		}
	}
}

// Two relays, sinks that fail in every way, jobs that can't be sent: whatever happens, no job of a key is sent before
// all older ones of it are everywhere.
func TestB10OrderOfKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		to    []string
		whole bool
		dead  string
	}{
		{name: "a sink that keeps the order", to: []string{"one:x"}, whole: true},
		{name: "one message of a key at a time", to: []string{"one:x"}},
		{name: "fan-out", to: []string{"one:x", "two:x"}, whole: true},
		{name: "dead ones are skipped", to: []string{"one:x"}, whole: true, dead: "skip"},
		{name: "addresses by job", to: []string{"one:{header.to}"}, whole: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			const jobs = 600
			die := `'{}'::jsonb`
			if c.dead == "skip" {
				die = `CASE g % 50 WHEN 7 THEN '{"bad": null}' ELSE '{}' END::jsonb`
			}
			db.Exec(t, `INSERT INTO jobs (kind, key, payload, headers, max_attempts)
				SELECT 'a', 'key' || g % 12, '1', jsonb_build_object('to', 'to' || g % 5) || `+die+`, 1000 FROM generate_series(1, $1::int) g`, jobs)
			w := newWitness()
			all := map[string]sinks.Sink{}
			for _, to := range c.to {
				name, _, _ := strings.Cut(to, ":")
				w.ends, w.have[name] = append(w.ends, name), map[string]bool{}
				s := &at{witness: w, name: name, say: moody}
				if all[name] = s; c.whole {
					all[name] = wholly{s}
				}
			}
			if c.dead == "" { // else what comes after a dead job isn't after the one before it
				w.expect(db, t)
			}
			routes := []Route{{Kind: "a", To: c.to, Order: "key", Dead: c.dead}}
			change := func(c *Config, s *claim.Options) { c.RetryMax, s.BatchSize = 30*time.Millisecond, 60 }
			var e *engine
			for range 2 {
				e = run(t, db, options{routes: routes, sinks: all, change: change})
			}
			e.eventually("all finished", func() bool {
				return text(e, `SELECT count(*)::text FROM `+db.Table+` WHERE finished_at IS NULL`) == "0"
			}, func() any { return e.jobs("a") })
			if dead := text(e, `SELECT count(*)::text FROM `+db.Table+` WHERE status = 'dead'`); (dead != "0") != (c.dead == "skip") {
				t.Errorf("%s jobs are dead", dead)
			}
			w.check(t, db)
			if runs := w.most > 1; runs != (c.whole && len(c.to) == 1 && c.to[0] == "one:x") {
				t.Errorf("the largest run of one key in one call: %d", w.most)
			}
			t.Logf("%d messages for %d jobs, runs of at most %d", w.sent, jobs, w.most)
		})
	}
}

// moody fails one message in five, in every way that lets the job come back.
func moody(sinks.Message) sinks.Outcome {
	switch rand.IntN(20) {
	case 0:
		return sinks.Unknown
	case 1:
		return sinks.Unavailable
	case 2, 3:
		return sinks.Failed
	}
	return sinks.Accepted
}

// A job that can't be sent holds its key until somebody decides; other keys go on (B10).
func TestB10DeadJobHoldsItsKey(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ids := testdb.Column[int64](t, db, `INSERT INTO jobs (kind, key, payload, headers)
		SELECT 'a', 'key' || g % 2, '1', CASE g WHEN 5 THEN '{"x": []}'::jsonb END FROM generate_series(1, 10) g RETURNING id`)
	s := &script{}
	e := run(t, db, options{routes: []Route{{Kind: "a", To: []string{"s:x"}, Order: "key"}}, sinks: map[string]sinks.Sink{"s": s}})
	e.eventually("the other key is done, one job dead", func() bool {
		j := e.jobs("a")
		return j["done/1"] == 7 && j["dead/1"] == 1
	}, func() any { return e.jobs("a") })
	e.until("a", "ready/0", 2)
	if got := len(s.sent()); got != 7 {
		t.Errorf("%d messages were sent, want 7: nothing behind the dead job", got)
	}
	db.Exec(t, `UPDATE jobs SET headers = NULL WHERE id = $1`, ids[4])
	if _, err := e.Store.RequeueDead(t.Context(), claim.Filter{IDs: ids[4:5]}, false); err != nil {
		t.Fatal(err)
	}
	e.until("a", "done/1", 10)
	tail := s.sent()[7:]
	want := []string{fmt.Sprint("test/", ids[4]), fmt.Sprint("test/", ids[6]), fmt.Sprint("test/", ids[8])}
	if fmt.Sprint(tail) != fmt.Sprint(want) {
		t.Errorf("then sent %v, want %v", tail, want)
	}
}

// A sink is told that the order of a message counts where its route says so and it has a key, and nowhere else: without
// that word it takes no care of attempts that land late.
func TestOrderIsSaid(t *testing.T) {
	t.Parallel()
	db, s := testdb.New(t), &script{}
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) VALUES ('a', 'x', '1'), ('a', '', '1'), ('a', NULL, '1'), ('b', 'x', '1'), ('b', NULL, '1')`)
	e := run(t, db, options{routes: []Route{{Kind: "a", To: []string{"s:x"}, Order: "key"}, {Kind: "b", To: []string{"s:x"}}}, sinks: map[string]sinks.Sink{"s": s}})
	e.until("a", "done/1", 3)
	e.until("b", "done/1", 2)
	for _, batch := range s.batches {
		for _, m := range batch {
			if want := m.Kind == "a" && m.Key != nil; m.Ordered != want {
				t.Errorf("kind %s, key %v: ordered %v, want %v", m.Kind, m.Key != nil, m.Ordered, want)
			}
		}
	}
}
