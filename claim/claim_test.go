package claim

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// A lease carries every column, and the row says that it is claimed.
func TestClaimReturnsEveryColumn(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	id := testdb.One[int64](t, db, `INSERT INTO jobs (kind, key, payload, headers, priority, attempts, max_attempts, alone, delivered, replay_of, run_at, created_at)
		VALUES ('k', 'é', '{"b": 1.50, "a": "<&>"}', '{"h": "v"}', 7, 2, 9, true, '{"kafka:a,b\"\\"}', 42, '2026-01-02T03:04:05.678901Z', '2026-01-01T00:00:00Z') RETURNING id`)
	q := newQueue(t, db, Options{Lease: time.Minute})
	start := time.Now()
	l := claimOne(t, q)
	if l.Token <= 0 || l.Until.Before(start.Add(time.Minute)) || l.Until.After(time.Now().Add(time.Minute)) {
		t.Errorf("token %d, until %v", l.Token, l.Until)
	}
	got := fmt.Sprintf("%d %s %s %s %s %v %d %d %d %v %q %d %s %s %v", l.ID, l.Kind, *l.Key, l.Payload, l.Headers, l.Body == nil, l.Priority,
		l.Attempt, l.MaxAttempts, l.Alone, l.Delivered, *l.ReplayOf, l.RunAt.Format(time.RFC3339Nano), l.CreatedAt.Format(time.RFC3339Nano), l.Fault)
	want := fmt.Sprintf(`%d k é {"a": "<&>", "b": 1.50} {"h": "v"} true 7 3 9 true ["kafka:a,b\"\\"] 42 2026-01-02T03:04:05.678901Z 2026-01-01T00:00:00Z <nil>`, id)
	if got != want {
		t.Errorf("lease\n got %s\nwant %s", got, want)
	}
	if r := read(t, db, id); r.Status != "running" || *r.Token != l.Token || !r.Leased || r.Attempts != 3 {
		t.Errorf("row %+v", r)
	}
}

// A body may be empty and hold any byte; it is never nil, the payload is.
func TestClaimReturnsBodies(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, body) VALUES ('k', '\x00ff5c78'), ('k', '')`)
	leases := claim(t, newQueue(t, db, Options{}))
	if len(leases) != 2 {
		t.Fatalf("%d leases", len(leases))
	}
	for i, want := range []string{"\x00\xff\\x", ""} {
		if l := leases[i]; string(l.Body) != want || l.Body == nil || l.Payload != nil {
			t.Errorf("body %q, payload %v, want %q and nil", l.Body, l.Payload, want)
		}
	}
}

// Leases are sorted by id, whatever RETURNING gives.
func TestClaimSortsByID(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at, priority) SELECT 'k', '1', now() - random() * interval '1 hour', g % 3 FROM generate_series(1, 300) g`)
	leases := claim(t, newQueue(t, db, Options{BatchSize: 250}))
	if !slices.IsSortedFunc(leases, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) }) || len(leases) != 250 {
		t.Errorf("%d leases, not sorted", len(leases))
	}
}

// Only due jobs of served kinds are taken.
func TestClaimLeavesTheRest(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at, status, attempts) VALUES
		('mine', '1', now() + interval '1 hour', 'ready', 0), ('mine', '2', now(), 'running', 1), ('mine', '3', now(), 'done', 1),
		('mine', '4', now(), 'dead', 1), ('theirs', '5', now(), 'ready', 0), ('mine', '6', '-infinity', 'ready', 0), ('mine', '7', 'infinity', 'ready', 0)`)
	q := newStore(t, db, Options{}).Queue(func(kind string) bool { return kind == "mine" })
	l := claimOne(t, q)
	if string(l.Payload) != "6" {
		t.Errorf("claimed %s", l.Payload)
	}
	settle(t, q, []Lease{*l}, Outcome{Verdict: Done})
	if got := drain(t, q); len(got) > 0 {
		t.Errorf("claimed %v as well", got)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM relay_kinds WHERE kind = 'theirs'`); n != 0 {
		t.Errorf("somebody else's kind has a row in relay_kinds")
	}
}

// A backlog of one kind never hides another's few jobs (B28), and it still gets full batches.
func TestB28ClaimIsFairBetweenKinds(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, run_at) SELECT 'big', '1', now() - interval '1 hour' FROM generate_series(1, 5000) g`)
	q := newQueue(t, db, Options{BatchSize: 100})
	for range 5 {
		claim(t, q)
	}
	insert(t, db, "small", 10)
	eventually(t, "the new kind is known", func() bool { return sweep(t, q).Pairs == 2 })
	if n := count(claim(t, q), "small"); n != 10 {
		t.Errorf("the next claim has %d of 10 jobs of the small kind", n)
	}
	for i := range 3 {
		if n := len(claim(t, q)); n != 100 {
			t.Errorf("claim %d has %d jobs, want a full batch", i, n)
		}
	}
}

// Several kinds with plenty share what there is.
func TestClaimSharesAmongKindsWithPlenty(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	for i := range 5 {
		insert(t, db, fmt.Sprintf("k%d", i), 2000)
	}
	q := newQueue(t, db, Options{BatchSize: 100})
	got := map[string]int{}
	for range 20 {
		leases := claim(t, q)
		if len(leases) > 100 {
			t.Fatalf("%d leases", len(leases))
		}
		for _, l := range leases {
			got[l.Kind]++
		}
	}
	for i := range 5 {
		if n := got[fmt.Sprintf("k%d", i)]; n < 380 || n > 420 {
			t.Errorf("kind %d got %d of 2000 in 20 claims, want 400: %v", i, n, got)
		}
	}
}

// Within a kind the larger priority goes first, and the others follow when it has no more.
func TestB28ClaimTakesLargerPriorityFirst(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, priority) SELECT 'k', '1', g % 3 - 1 FROM generate_series(1, 300) g`)
	q := newQueue(t, db, Options{BatchSize: 50})
	var order []int16
	for len(order) < 300 {
		leases := claim(t, q)
		if len(leases) == 0 {
			t.Fatalf("an empty claim after %d jobs", len(order))
		}
		slices.SortFunc(leases, func(a, b Lease) int { return int(b.Priority) - int(a.Priority) })
		for _, l := range leases {
			order = append(order, l.Priority)
		}
	}
	if !slices.IsSortedFunc(order, func(a, b int16) int { return int(b) - int(a) }) {
		t.Errorf("priorities in the order of claims: %v", order)
	}
}

// A job of a larger priority that comes later overtakes what waits.
func TestClaimLetsUrgentJobsOvertake(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, priority) SELECT 'k', '1', 5 FROM generate_series(1, 3) g`)
	insert(t, db, "k", 1000)
	q := newQueue(t, db, Options{BatchSize: 20})
	claim(t, q)
	claim(t, q)
	db.Exec(t, `INSERT INTO jobs (kind, payload, priority) VALUES ('k', '"urgent"', 5)`)
	if n := len(slices.DeleteFunc(claim(t, q), func(l Lease) bool { return l.Priority != 5 })); n != 1 {
		t.Errorf("the urgent job isn't in the next batch")
	}
}

// Gate: a closed pair isn't claimed, Max bounds it, Lacking takes only jobs that lack an open destination.
func TestClaimKeepsToTheGate(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	insert(t, db, "closed", 3)
	insert(t, db, "one", 3)
	db.Exec(t, `INSERT INTO jobs (kind, payload, delivered) VALUES ('part', '1', '{a}'), ('part', '2', '{a,b}'), ('part', '3', NULL), ('part', '4', '{b,"c,d"}')`)
	q := newQueue(t, db, Options{})
	leases, err := q.Claim(t.Context(), func(p Pair) Gate {
		switch p.Kind {
		case "one":
			return Gate{Open: true, Max: 1}
		case "part":
			return Gate{Open: true, Lacking: []string{"b", "c,d"}}
		}
		return Gate{}
	})
	if err != nil {
		t.Fatal(err)
	}
	if count(leases, "closed") != 0 || count(leases, "one") != 1 || count(leases, "part") != 3 {
		t.Errorf("closed %d, one %d, part %d; want 0, 1, 3", count(leases, "closed"), count(leases, "one"), count(leases, "part"))
	}
}

// The running sum of bytes cuts a batch; one job is always taken; nothing is lost by the cut.
func TestClaimKeepsToTheBytes(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, key) SELECT 'k', to_jsonb(repeat('x', CASE WHEN g % 10 = 5 THEN 300000 ELSE 10000 END)), g FROM generate_series(1, 60) g`)
	db.Exec(t, `INSERT INTO jobs (kind, body) SELECT 'b', convert_to(repeat('x', 20000), 'utf8') FROM generate_series(1, 20)`)
	q := newQueue(t, db, Options{BatchBytes: 100_000})
	total := 0
	for total < 80 {
		leases := claim(t, q)
		size := 0
		for i := range leases {
			size += leases[i].Size()
		}
		if len(leases) == 0 || size > 100_000 && len(leases) > 1 {
			t.Fatalf("after %d jobs a batch of %d jobs and %d bytes", total, len(leases), size)
		}
		total += len(leases)
	}
	if total != 80 {
		t.Errorf("%d claims of 80 jobs", total)
	}
}

// Large values are stored outside the row: a claim that may take eight doesn't read five hundred.
func TestClaimDoesntReadWhatItCantTake(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, body) SELECT 'k', (SELECT string_agg(sha256((g * 10000 + i)::text::bytea), '') FROM generate_series(1, 4000) i) FROM generate_series(1, 100) g`)
	q := newQueue(t, db, Options{BatchBytes: 1 << 20})
	e := explainClaim(t, q, db)
	if size := 128_000; e.rows != (1<<20)/size || e.buffers > 1000 {
		t.Errorf("%d rows of %d bytes, %d buffers read", e.rows, size, e.buffers)
	}
	first := claim(t, q)
	if len(first) != 8 {
		t.Errorf("claimed %d, want 8", len(first))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if fits := q.kinds["k"].fits(1 << 20); fits > 25 {
		t.Errorf("the next claim would lock %d rows", fits)
	}
}

// A database whose clock is behind the one of before, as after a failover, doesn't leave new jobs to the sweep.
func TestClaimAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	q := newQueue(t, db, Options{})
	q.Expect("k")
	claim(t, q)
	q.mu.Lock()
	q.find(Pair{Kind: "k"}).floor = pointAt(time.Now().Add(time.Hour))
	q.mu.Unlock()
	claim(t, q)
	insert(t, db, "k", 1)
	claimOne(t, q)
}

// Odd attempts neither stop a batch nor overflow (B07).
func TestB07ClaimTakesOddAttempts(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, attempts, max_attempts) SELECT 'k', '1', a, m
		FROM unnest('{30,31,62,63,64,1023,1100,32767,2147483646,2147483647,-5,-2147483648}'::int[]) a, unnest('{2147483647,0,-1,1,5}'::int[]) m`)
	insert(t, db, "k", 100)
	q := newQueue(t, db, Options{BatchSize: 25})
	seen := map[int64]int{}
	for len(seen) < 160 {
		leases := claim(t, q)
		if len(leases) == 0 {
			t.Fatalf("nothing to claim after %d jobs", len(seen))
		}
		for i, l := range leases {
			if seen[l.ID]++; seen[l.ID] > 1 {
				t.Fatalf("job %d claimed twice", l.ID)
			}
			v := []Verdict{Done, Dead, Retry, Release}[i%4]
			after := time.Hour
			if lost := settle(t, q, leases[i:i+1], Outcome{Verdict: v, After: after, Error: "x"}); len(lost) > 0 {
				t.Fatalf("lost %v with verdict %v", lost, v)
			}
		}
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'running'`); n != 0 {
		t.Errorf("%d still running", n)
	}
}

// Two queues and eight workers take each of 20,000 jobs exactly once.
func TestClaimTakesEachJobOnce(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, priority) SELECT 'k' || g % 3, '1', g % 2 FROM generate_series(1, 20000) g`)
	type result struct {
		ids []int64
		err error
	}
	results := make(chan result)
	for range 2 {
		q := newQueue(t, db, Options{BatchSize: 200})
		for range 4 {
			go func() {
				var r result
				defer func() { results <- r }()
				for empty := 0; empty < 3; {
					leases, err := q.Claim(t.Context(), open)
					if err != nil {
						r.err = err
						return
					}
					if len(leases) == 0 {
						empty++
						if _, r.err = q.Sweep(t.Context()); r.err != nil {
							return
						}
						continue
					}
					outcomes := make([]Outcome, len(leases))
					for i := range leases {
						r.ids = append(r.ids, leases[i].ID)
						outcomes[i] = Outcome{Lease: &leases[i], Verdict: Done}
					}
					if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
						r.err = fmt.Errorf("lost %v: %w", lost, err)
						return
					}
				}
			}()
		}
	}
	seen := map[int64]int{}
	for range 8 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		for _, id := range r.ids {
			seen[id]++
		}
	}
	twice := 0
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	if len(seen) != 20000 || twice > 0 {
		t.Errorf("%d of 20000 jobs claimed, %d of them twice", len(seen), twice)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'done' AND attempts = 1`); n != 20000 {
		t.Errorf("%d done at the first attempt", n)
	}
}

func count(leases []Lease, kind string) (n int) {
	for _, l := range leases {
		if l.Kind == kind {
			n++
		}
	}
	return n
}
