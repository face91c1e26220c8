package claim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/internal/testlog"
)

// naming are the lines that name a job among those that are refused.
func naming(log *testlog.Buffer, id int64) (n int) {
	for line := range strings.Lines(log.String()) {
		if _, list, ok := strings.Cut(line, "job_ids=\"["); ok && slices.Contains(strings.Fields(list[:strings.Index(list, "]")]), fmt.Sprint(id)) {
			n++
		} else if _, list, ok := strings.Cut(line, "job_ids=["); ok && list[:strings.Index(list, "]")] == fmt.Sprint(id) {
			n++
		}
	}
	return n
}

func logged(o Options) (Options, *testlog.Buffer) {
	log := &testlog.Buffer{}
	o.Log = log.Logger()
	return o, log
}

// refuse makes a trigger raise an error for rows with a mark in their headers.
func refuse(t testing.TB, db *testdb.DB, event, how string) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.headers ? 'bad' THEN %s; END IF; RETURN coalesce(NEW, OLD); END $$;
		CREATE TRIGGER refuse BEFORE %s ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()`, how, event))
}

const badJob = `INSERT INTO jobs (kind, key, payload, headers, attempts, max_attempts, run_at) VALUES ('k', 'bad', '"secret"', '{"bad": 1}', 5, 5, now() - interval '1 hour') RETURNING id`

// One row that can't be claimed holds up no other: whatever refuses it, of whichever sort its kind is, at the head of all
// or in their midst.
func TestClaimLeavesOutARefusedRow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, how string }{
		{"a constraint of the table", ""},
		{"a trigger's exception", `RAISE 'no'`},
		{"an error code of their own", `RAISE 'no' USING ERRCODE = 'XY001'`},
		{"a trigger that is broken", `PERFORM missing()`},
		{"a trigger that takes for ever", `PERFORM pg_sleep(100)`},
	} {
		for _, sort := range []string{"unordered", "ordered"} {
			t.Run(c.name+"/"+sort, func(t *testing.T) {
				t.Parallel()
				db := testdb.New(t)
				if c.how == "" {
					db.Exec(t, `ALTER TABLE jobs ADD CHECK (attempts <= max_attempts)`)
				} else {
					refuse(t, db, "UPDATE", c.how)
				}
				first := testdb.One[int64](t, db, badJob)
				keyed(t, db, 5, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
				second := testdb.One[int64](t, db, strings.Replace(badJob, "'bad'", "'bad2'", 1))
				behind := insert(t, db, "k", 50)
				held := keyed(t, db, 3, "bad")["bad"]
				o, log := logged(Options{BatchSize: 40, Statement: 2 * time.Second})
				q := newQueue(t, db, o)
				if sort == "ordered" {
					q = ordered(t, db, o, Order{})
				}
				want := 100
				if sort == "unordered" {
					want += len(held)
				}
				got := map[int64]bool{}
				eventually(t, "all others are done", func() bool {
					for _, id := range drain(t, q) {
						got[id] = true
					}
					return len(got) >= want
				})
				if len(got) != want || got[first] || got[second] || !got[behind[49]] {
					t.Errorf("claimed %d jobs, want %d and not the refused ones", len(got), want)
				}
				eventually(t, "the refused ones are known", func() bool {
					got := drain(t, q)
					return len(got) == 0 && naming(log, first) > 0 && naming(log, second) > 0
				})
				for _, id := range []int64{first, second} {
					if n := naming(log, id); n != 1 {
						t.Errorf("job %d is named %d times:\n%s", id, n, log)
					}
					if r := read(t, db, id); r.Status != "ready" || r.Attempts != 5 || r.Token != nil {
						t.Errorf("job %d: %+v", id, r)
					}
				}
				if strings.Contains(log.String(), "secret") {
					t.Error("the payload is in the log")
				}
				if s := sweep(t, q); s.Due != 0 {
					t.Errorf("a sweep finds %d due", s.Due)
				}
				// Once it is mended, and its time is over, it goes like any other.
				db.Exec(t, `DROP TRIGGER IF EXISTS refuse ON jobs`)
				db.Exec(t, `UPDATE jobs SET max_attempts = 9 WHERE headers IS NOT NULL`)
				q.refused.hurry()
				var rest []int64
				eventually(t, "the rest is done", func() bool {
					rest = append(rest, drain(t, q)...)
					return len(rest) >= 103+2-want
				})
				if len(rest) != 103+2-want || !slices.Contains(rest, first) || !slices.Contains(rest, second) {
					t.Errorf("claimed %v after that", rest)
				}
				if ids := q.refused.ids(); ids != nil {
					t.Errorf("%v are still left out", ids)
				}
			})
		}
	}
}

// hurry ends the time for which rows are left out.
func (r *refusals) hurry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, row := range r.rows {
		row.until = time.Now().Add(-time.Millisecond)
		r.rows[id] = row
	}
	clear(r.kinds)
}

// More refused rows than any search names hold up nothing, and a kind of which nothing can be claimed no other kind.
func TestClaimGoesRoundManyRefusedRows(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `ALTER TABLE jobs ADD CHECK (attempts <= max_attempts)`)
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, attempts, max_attempts) SELECT 'k', 'bad', '1', 5, 5 FROM generate_series(1, 1500)`)
	good := insert(t, db, "k", 100)
	other := insert(t, db, "other", 100)
	for _, sort := range []string{"unordered", "ordered"} {
		o, log := logged(Options{BatchSize: 100})
		q := newQueue(t, db, o)
		if sort == "ordered" {
			q = ordered(t, db, o, Order{})
		}
		got := 0
		eventually(t, "all others are claimed", func() bool {
			leases := claim(t, q)
			got += len(leases)
			if len(leases) == 0 {
				sweep(t, q)
			}
			return got == len(good)+len(other)
		})
		if n := log.Count("\n"); n > 100 {
			t.Errorf("%s: %d lines of log", sort, n)
		}
		db.Exec(t, `UPDATE jobs SET status = 'ready', attempts = 0 WHERE status = 'running'`)
	}
}

// When there is no room to remember more of them, the kind rests, and the others go on.
func TestKindOfWhichTooManyRowsAreRefusedRests(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `ALTER TABLE jobs ADD CHECK (attempts <= max_attempts)`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, attempts, max_attempts) SELECT 'k', '1', 5, 5 FROM generate_series(1, 300)`)
	o, log := logged(Options{})
	q := newQueue(t, db, o)
	full := make([]int64, refusedMost-100)
	for i := range full {
		full[i] = int64(1e6 + i)
	}
	q.refused.add(full, &suspects{Pair: Pair{Kind: "k"}})
	if got := claim(t, q); len(got) > 0 {
		t.Fatalf("claimed %d", len(got))
	}
	insert(t, db, "other", 20)
	eventually(t, "the other kind is claimed", func() bool { sweep(t, q); return len(claim(t, q)) == 20 })
	if n := log.Count("kind=k"); n != 1 {
		t.Errorf("%d lines say that the kind rests:\n%s", n, log)
	}
	if n := len(q.refused.ids()); n > refusedMost {
		t.Errorf("%d rows are remembered", n)
	}
}

// An expired lease that can't be ended holds up no other, and isn't tried with every sweep.
func TestReapLeavesOutARefusedRow(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	refuse(t, db, "UPDATE", `RAISE 'no'`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, attempts, lease_token, leased_until, headers)
		SELECT 'k', '1', 'running', 1, 7, now() - interval '1 s', CASE WHEN g = 77 THEN '{"bad": 1}'::jsonb END FROM generate_series(1, 200) g`)
	stuck := testdb.One[int64](t, db, `SELECT id FROM jobs WHERE headers IS NOT NULL`)
	o, log := logged(Options{})
	q := newQueue(t, db, o)
	reaped := 0
	eventually(t, "all others are reaped", func() bool { reaped += sweep(t, q).Reaped["k"]; return reaped == 199 })
	for range 3 {
		sweep(t, q)
	}
	if n := naming(log, stuck); n != 1 {
		t.Errorf("job %d is named %d times:\n%s", stuck, n, log)
	}
	db.Exec(t, `DROP TRIGGER refuse ON jobs`)
	q.refused.hurry()
	eventually(t, "the last is reaped", func() bool { return sweep(t, q).Reaped["k"] == 1 })
}

// A finished job that can't be deleted keeps no other from going.
func TestCleanLeavesOutARefusedRow(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	refuse(t, db, "DELETE", `RAISE 'no'`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, status, lease_token, finished_at, headers)
		SELECT 'k', '1', CASE WHEN g % 2 = 0 THEN 'dead' ELSE 'done' END, 7, now() - interval '1 day' + g * interval '1 ms', CASE WHEN g IN (1, 1500) THEN '{"bad": 1}'::jsonb END FROM generate_series(1, 3000) g`)
	stuck := testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE headers IS NOT NULL ORDER BY id`)
	o, log := logged(Options{})
	q := newQueue(t, db, o)
	for _, want := range []int64{2998, 0} {
		if n, err := q.Clean(t.Context(), time.Hour, time.Hour); n != want || err != nil {
			t.Errorf("removed %d, want %d, %v", n, want, err)
		}
	}
	if got := testdb.Column[int64](t, db, `SELECT id FROM jobs ORDER BY id`); !slices.Equal(got, stuck) {
		t.Errorf("left %v, want %v", got, stuck)
	}
	for _, id := range stuck {
		if n := naming(log, id); n != 1 {
			t.Errorf("job %d is named %d times:\n%s", id, n, log)
		}
	}
}

// A lease that can't be renewed is lost, and the others are renewed.
func TestExtendLeavesOutARefusedRow(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	insert(t, db, "k", 9)
	stuck := testdb.One[int64](t, db, badJob)
	q := newQueue(t, db, Options{})
	leases := claim(t, q)
	refuse(t, db, "UPDATE", `RAISE 'no'`)
	all := make([]*Lease, len(leases))
	before := make([]time.Time, len(leases))
	for i := range leases {
		all[i], before[i] = &leases[i], leases[i].Until
	}
	lost, err := q.Extend(t.Context(), all)
	if err != nil || !slices.Equal(lost, []int64{stuck}) {
		t.Fatalf("lost %v, want %d; %v", lost, stuck, err)
	}
	for i, l := range leases {
		if renewed := l.Until.After(before[i]); renewed == (l.ID == stuck) {
			t.Errorf("job %d renewed: %v", l.ID, renewed)
		}
	}
}

// A job whose text is larger than Postgres can write is refused after ten seconds of trying, in a gigabyte of memory: that
// mustn't happen once for each step of the search, nor with each claim.
func TestClaimLeavesOutAJobTooLargeToRead(t *testing.T) {
	if !services.Long() {
		return
	}
	db := testdb.New(t)
	for _, sort := range []string{"unordered", "ordered"} {
		db.Exec(t, `TRUNCATE jobs`)
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'k', 'large', jsonb_agg(1e131071::numeric) FROM generate_series(1, 9000)`)
		large := testdb.One[int64](t, db, `SELECT id FROM jobs`)
		good := insert(t, db, "k", 100)
		o, log := logged(Options{})
		q := newQueue(t, db, o)
		if sort == "ordered" {
			q = ordered(t, db, o, Order{})
		}
		start, got, longest := time.Now(), 0, time.Duration(0)
		for got < len(good) || naming(log, large) == 0 {
			began := time.Now()
			leases := claim(t, q)
			longest = max(longest, time.Since(began))
			if got += len(leases); time.Since(start) > 3*time.Minute {
				t.Fatalf("%s: %d claimed\n%s", sort, got, log)
			}
			if len(leases) == 0 {
				sweep(t, q)
			}
		}
		t.Logf("%s: %v, of which one claim took %v\n%s", sort, time.Since(start), longest, log)
		began := time.Now()
		if claim(t, q); time.Since(began) > time.Second {
			t.Errorf("%s: a claim after that took %v", sort, time.Since(began))
		}
		if got != len(good) {
			t.Errorf("%s: claimed %d", sort, got)
		}
	}
}
