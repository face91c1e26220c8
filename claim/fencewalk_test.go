package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// TestFenceExhaustively walks every order of up to four claims by relays and old workers, both reapers, requeues by
// hand and by command, and late and repeated settlements of every verdict, on the real statements: breadth first, each
// state once. After every step the row is what the model says, and no promise is broken.
func TestFenceExhaustively(t *testing.T) {
	t.Parallel()
	w := newFenceWalk(t, nil)
	begin := time.Now()
	w.walk()
	t.Logf("%d states, %d steps, %d levels in %v", len(w.seen), w.steps, w.levels, time.Since(begin).Round(time.Millisecond))
	for _, p := range w.problems {
		t.Error(p)
	}
	if w.steps < 10_000 {
		t.Errorf("only %d steps: the walk has ended early", w.steps)
	}
}

// fenceWalk runs the model and the database side by side.
type fenceWalk struct {
	t        testing.TB
	db       *testdb.DB
	queue    *Queue
	deleting *Queue // retention 0

	byAttempts bool // leases carry their attempts instead of their token

	seen     map[string]step
	steps    int
	levels   int
	problems []string
}

// step is how a state was first reached.
type step struct {
	from string
	deed deed
}

func newFenceWalk(t testing.TB, harm func(*fenceWalk)) *fenceWalk {
	t.Helper()
	db := testdb.New(t)
	db.Exec(t, `ALTER TABLE jobs SET UNLOGGED; ALTER TABLE relay_closed_keys SET UNLOGGED`) // a quarter of a million rows needn't survive
	o := Options{BatchSize: 10_000, BatchBytes: 1 << 30}
	w := &fenceWalk{t: t, db: db, queue: newQueue(t, db, o), seen: map[string]step{}}
	o.DeleteDone = true
	w.deleting = newQueue(t, db, o)
	if harm != nil {
		harm(w)
	}
	return w
}

func (w *fenceWalk) sql() *statements { return &w.queue.s.sql }

// try is one step from one state: a row of the table while it is looked at.
type try struct {
	id     int64
	from   state
	deed   deed
	ctid   string
	lease  *Lease // what the step claimed
	lost   bool   // reported as lost
	result modelRow
	moved  bool // the row was written
}

// token stands for that of the claim with this number: rows are made anew for every step.
func token(number int) int64 { return 1_000_000 + int64(number) }

// walk visits every state, and stops after the level in which something is wrong.
func (w *fenceWalk) walk() {
	first := state{row: modelRow{Status: "ready"}}
	w.seen[first.key()] = step{}
	for level := []state{first}; len(level) > 0 && len(w.problems) == 0; w.levels++ {
		byAct := map[act][]*try{}
		for _, s := range level {
			for _, d := range s.deeds() {
				byAct[d.act] = append(byAct[d.act], &try{from: s, deed: d})
			}
		}
		level = nil
		for _, a := range slices.Sorted(maps.Keys(byAct)) {
			w.run(a, byAct[a])
			for _, y := range byAct[a] {
				if next, isNew := w.judge(y); isNew {
					level = append(level, next)
				}
			}
		}
	}
}

// judge compares what happened with the model and the promises, and returns the state to go on from if it is new.
func (w *fenceWalk) judge(y *try) (next state, isNew bool) {
	w.steps++
	next, lost := y.from.after(y.deed)
	switch promise := breach(y.from, y.deed, y.result, y.moved); {
	case promise != "":
		w.problem(y, promise, next)
	case y.result != next.row:
		w.problem(y, "not what the model says", next)
	case y.lost != lost:
		w.problem(y, fmt.Sprintf("lost is %v, want %v", y.lost, lost), next)
	}
	if key := next.key(); !w.has(key) {
		w.seen[key] = step{y.from.key(), y.deed}
		return next, true
	}
	return state{}, false
}

func (w *fenceWalk) has(key string) bool { _, ok := w.seen[key]; return ok }

func (w *fenceWalk) problem(y *try, what string, want state) {
	if len(w.problems) >= 10 {
		return
	}
	path := []string{y.deed.String()}
	for at := y.from.key(); w.seen[at].from != ""; at = w.seen[at].from {
		path = append(path, w.seen[at].deed.String())
	}
	slices.Reverse(path)
	w.problems = append(w.problems, fmt.Sprintf("%s\n  steps: %s\n  before %+v\n  after  %+v\n  want   %+v",
		what, strings.Join(path, " → "), y.from.row, y.result, want.row))
}

// run makes a row for each try, lets the act happen to all of them, and reads them back.
func (w *fenceWalk) run(a act, tries []*try) {
	w.t.Helper()
	w.fill(tries)
	byID := make(map[int64]*try, len(tries))
	for _, y := range tries {
		byID[y.id] = y
	}
	switch {
	case a <= relayClaimsByKey:
		w.claim(a == relayClaimsByKey, byID)
	case a >= relaySettles:
		w.holders(a, tries, byID)
	default:
		w.others(a, tries)
	}
	w.read(byID)
}

func (w *fenceWalk) claim(byKey bool, byID map[int64]*try) {
	w.t.Helper()
	q := w.queue.s.Queue(every)
	if byKey {
		q.OrderOf(func(string) Order { return Order{Keys: true} })
	}
	for empty := 0; empty < 2; {
		leases := claim(w.t, q)
		if len(leases) == 0 {
			empty++
		}
		for i := range leases {
			byID[leases[i].ID].lease = &leases[i]
		}
	}
}

// others lets everybody act who holds nothing. The statements are those of one job, on all jobs of the table.
func (w *fenceWalk) others(a act, tries []*try) {
	w.t.Helper()
	ctx, s := w.t.Context(), w.queue.s
	switch a {
	case oldClaims:
		w.db.Exec(w.t, `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '30 seconds'
			WHERE id IN (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() FOR UPDATE SKIP LOCKED)`)
	case oldTakesOver:
		w.db.Exec(w.t, `UPDATE jobs SET attempts = attempts + 1, status = 'running', leased_until = now() + interval '30 seconds'
			WHERE status = 'running' AND leased_until < now()`)
	case leaseRunsOut:
		w.db.Exec(w.t, `UPDATE jobs SET leased_until = now() - interval '1 second' WHERE leased_until > now()`)
	case relayReaps: // of every job, not only of those that a sweep has just found expired
		w.inChunks(tries, func(some []*try) error {
			return w.queue.reapSome(ctx, idsOf(some), &Swept{Reaped: map[string]int{}, Dead: map[string]int{}})
		})
	case oldReaps:
		w.db.Exec(w.t, oldReap)
	case handRequeues:
		w.db.Exec(w.t, `UPDATE jobs SET status = 'ready', attempts = 0, run_at = now()`)
	case handReadies:
		w.db.Exec(w.t, `UPDATE jobs SET status = 'ready'`)
	case handKills:
		w.db.Exec(w.t, `UPDATE jobs SET status = 'dead'`)
	case commandRequeues, commandDiscards: // of every job: it may be dead no more when the statement runs
		sql := map[act]string{commandRequeues: s.sql.requeue, commandDiscards: s.sql.discard}[a]
		w.inChunks(tries, func(some []*try) error {
			page := make([]DeadJob, len(some))
			for i, y := range some {
				page[i].ID = y.id
			}
			_, err := s.changeSome(ctx, sql, page)
			return err
		})
	}
}

// holders lets those act who claimed the job at some time.
func (w *fenceWalk) holders(a act, tries []*try, byID map[int64]*try) {
	w.t.Helper()
	ctx := w.t.Context()
	switch a {
	case oldCompletes:
		w.old(tries, `UPDATE jobs j SET status = 'done', leased_until = NULL FROM unnest($1::bigint[], $2::int[]) AS o (id, attempts)
			WHERE j.id = o.id AND j.status = 'running' AND j.attempts = o.attempts`)
		return
	case oldRetries:
		w.old(tries, `UPDATE jobs j SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'ready' END,
				run_at = now(), leased_until = NULL, last_error = 'try later' FROM unnest($1::bigint[], $2::int[]) AS o (id, attempts)
			WHERE j.id = o.id AND j.status = 'running' AND j.attempts = o.attempts`)
		return
	}
	w.inChunks(tries, func(some []*try) (err error) {
		var lost []int64
		switch a {
		case relayExtends:
			leases := make([]*Lease, len(some))
			for i, y := range some {
				leases[i] = w.lease(y)
			}
			lost, err = w.queue.Extend(ctx, leases)
		default:
			outcomes := make([]Outcome, len(some))
			for i, y := range some {
				v := y.deed.verdict
				outcomes[i] = Outcome{Lease: w.lease(y), Verdict: v, Error: "late", Delivered: []string{newDelivered(v)}}
			}
			q := w.queue
			if a == relaySettlesOnce {
				q = w.deleting
			}
			lost, err = q.Settle(ctx, outcomes)
		}
		for _, id := range lost {
			byID[id].lost = true
		}
		return err
	})
}

// lease is what the claimant of the deed got when it claimed.
func (w *fenceWalk) lease(y *try) *Lease {
	c := y.from.claims[y.deed.who]
	l := &Lease{ID: y.id, Kind: "k", Token: token(y.deed.who + 1), Attempt: c.Attempts, Delivered: letters(c.Delivered)}
	if w.byAttempts {
		l.Token = int64(c.Attempts)
	}
	return l
}

func (w *fenceWalk) old(tries []*try, sql string) {
	w.t.Helper()
	attempts := make([]int32, len(tries))
	for i, y := range tries {
		attempts[i] = int32(y.from.claims[y.deed.who].Attempts)
	}
	w.db.Exec(w.t, sql, idsOf(tries), attempts)
}

func (w *fenceWalk) inChunks(tries []*try, do func([]*try) error) {
	w.t.Helper()
	for some := range slices.Chunk(tries, 5000) {
		if err := do(some); err != nil {
			w.t.Fatal(err)
		}
	}
}

func idsOf(tries []*try) []int64 {
	ids := make([]int64, len(tries))
	for i, y := range tries {
		ids[i] = y.id
	}
	return ids
}

func letters(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "")
}

// fill empties the table and gives every try a row of its own, with a key of its own.
func (w *fenceWalk) fill(tries []*try) {
	w.t.Helper()
	n := len(tries)
	ids, attempts, tokens := make([]int64, n), make([]int32, n), make([]*int64, n)
	statuses, delivered := make([]string, n), make([]string, n)
	leases, reasons := make([]int32, n), make([]bool, n)
	for i, y := range tries {
		r := y.from.row
		y.id = int64(i + 1)
		ids[i], statuses[i], attempts[i], leases[i], reasons[i], delivered[i] = y.id, r.Status, int32(r.Attempts), int32(r.Lease), r.Reason, r.Delivered
		if r.Token > 0 {
			v := token(r.Token)
			if w.byAttempts {
				v = int64(y.from.claims[r.Token-1].Attempts)
			}
			tokens[i] = &v
		}
	}
	w.db.Exec(w.t, `TRUNCATE jobs, relay_closed_keys`)
	w.db.Exec(w.t, `INSERT INTO jobs (id, kind, key, payload, run_at, max_attempts, status, attempts, lease_token, leased_until, last_error, delivered, finished_at)
		OVERRIDING SYSTEM VALUE
		SELECT o.id, 'k', 'key ' || o.id, '1', now() - interval '1 minute', $1, o.status, o.attempts, o.token,
			CASE o.lease WHEN 1 THEN now() + interval '1 hour' WHEN 2 THEN now() - interval '1 hour' END,
			CASE WHEN o.reason THEN 'earlier' END, CASE WHEN o.delivered <> '' THEN string_to_array(o.delivered, NULL) END,
			CASE WHEN o.status IN ('done', 'dead') THEN now() END
		FROM unnest($2::bigint[], $3::text[], $4::int[], $5::bigint[], $6::int[], $7::bool[], $8::text[])
			AS o (id, status, attempts, token, lease, reason, delivered)`,
		maxAttempts, ids, statuses, attempts, tokens, leases, reasons, delivered)
	places := testdb.Column[string](w.t, w.db, `SELECT ctid::text FROM jobs ORDER BY id`)
	for i, y := range tries {
		y.ctid = places[i]
	}
}

// read fills in the results: what isn't found is gone.
func (w *fenceWalk) read(byID map[int64]*try) {
	w.t.Helper()
	for _, y := range byID {
		y.result, y.moved = modelRow{Gone: true}, true
	}
	rows, err := w.db.Pool.Query(context.WithoutCancel(w.t.Context()), `SELECT j.id, j.ctid::text, j.status, j.attempts, coalesce(j.lease_token, 0),
			CASE WHEN j.leased_until IS NULL THEN 0 WHEN j.leased_until > now() THEN 1 ELSE 2 END, j.last_error IS NOT NULL,
			j.finished_at IS NOT NULL, coalesce((SELECT string_agg(d, '' ORDER BY d) FROM unnest(j.delivered) AS d), ''), c.job IS NOT NULL
		FROM jobs j LEFT JOIN relay_closed_keys c ON c.job = j.id`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, token int64
		var ctid string
		var r modelRow
		if err := rows.Scan(&id, &ctid, &r.Status, &r.Attempts, &token, &r.Lease, &r.Reason, &r.Finished, &r.Delivered, &r.Closed); err != nil {
			w.t.Fatal(err)
		}
		y := byID[id]
		r.Token = w.whose(y, token)
		y.result, y.moved = r, ctid != y.ctid
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
}

// whose is the number of the claim that a token proves; -1 if it is nobody's.
func (w *fenceWalk) whose(y *try, t int64) int {
	switch {
	case t == 0:
		return 0
	case y.lease != nil && t == y.lease.Token:
		return len(y.from.claims) + 1
	case w.byAttempts:
		return y.from.row.Token
	case t > token(0) && t <= token(len(y.from.claims)):
		return int(t - token(0))
	}
	return -1
}
