package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// shop enqueues jobs and writes down what it committed and what it rolled back.
type shop struct {
	t      *testing.T
	db     *testdb.DB
	outbox outbox.Client

	mu         sync.Mutex
	committed  map[string]map[int64]bool // by kind
	rolledBack map[int64]bool
}

func newShop(t *testing.T, db *testdb.DB) *shop {
	return &shop{t: t, db: db, outbox: outbox.Client{Table: db.Table}, committed: map[string]map[int64]bool{}, rolledBack: map[int64]bool{}}
}

// trade commits n jobs of each kind, from as many writers as there are kinds, in transactions of 1 to 20 jobs; a third
// of the transactions rolls back.
func (s *shop) trade(n int, kinds ...string) {
	s.t.Helper()
	var writers sync.WaitGroup
	for i, kind := range kinds {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for done := 0; done < n; {
				size, abort := min(1+rnd.IntN(20), n-done), rnd.IntN(3) == 0
				if err := s.transaction(kind, size, abort, rnd); err != nil {
					s.t.Errorf("enqueue: %v", err)
					return
				}
				if !abort {
					done += size
				}
			}
		})
	}
	writers.Wait()
}

var errAbort = errors.New("the business changed its mind")

func (s *shop) transaction(kind string, size int, abort bool, rnd *rand.Rand) error {
	jobs := make([]outbox.Job, size)
	for i := range jobs {
		jobs[i] = sample(kind, rnd)
	}
	var ids []int64
	err := pgx.BeginFunc(context.Background(), s.db.Pool, func(tx pgx.Tx) (err error) {
		if ids, err = s.outbox.Enqueue(context.Background(), tx, jobs...); err == nil && abort {
			err = errAbort
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errAbort):
		for _, id := range ids {
			s.rolledBack[id] = true
		}
		return nil
	case err != nil:
		return err
	}
	s.note(kind, ids)
	return nil
}

func (s *shop) note(kind string, ids []int64) {
	if s.committed[kind] == nil {
		s.committed[kind] = map[int64]bool{}
	}
	for _, id := range ids {
		s.committed[kind][id] = true
	}
}

// sample is a job with something of everything.
func sample(kind string, rnd *rand.Rand) outbox.Job {
	j := outbox.Job{Kind: kind, Headers: map[string]any{"n": rnd.IntN(1000), "big": int64(5000000000), "on": true, "text": "é😀"}}
	if rnd.IntN(4) > 0 {
		j.Key = "key-" + strconv.Itoa(rnd.IntN(50))
	}
	if rnd.IntN(5) == 0 {
		j.Body = make([]byte, 1+rnd.IntN(300))
		for i := range j.Body {
			j.Body[i] = byte(rnd.Uint32())
		}
		return j
	}
	j.Payload = json.RawMessage(fmt.Sprintf(`{"id": 1546130668394913822, "z": 123456789012345678901234567890, "s": "<&>\u2028é😀", "pad": %q}`, strings.Repeat("x", rnd.IntN(500))))
	return j
}

// row is a job as the table has it, in the form that consumers see.
type row struct {
	key     *string
	headers map[string]string
	payload []byte
}

// rows reads the jobs of some kinds.
func (s *shop) rows(kinds []string) map[string]row {
	s.t.Helper()
	out := map[string]row{}
	rs, err := s.db.Pool.Query(context.Background(), `SELECT id, key, coalesce(headers, '{}')::text, payload::text, body FROM `+s.db.Table+` WHERE kind = ANY($1)`, kinds)
	if err != nil {
		s.t.Fatal(err)
	}
	var (
		id      int64
		key     *string
		headers string
		payload *string
		body    []byte
	)
	if _, err := pgx.ForEachRow(rs, []any{&id, &key, &headers, &payload, &body}, func() error {
		r := row{key: key, payload: bytes.Clone(body)}
		if payload != nil {
			r.payload = []byte(*payload)
		}
		r.headers = map[string]string{}
		var raw map[string]json.RawMessage
		if err := json.Unmarshal([]byte(headers), &raw); err != nil {
			return err
		}
		for k, v := range raw {
			text := string(v)
			if text[0] == '"' {
				if err := json.Unmarshal(v, &text); err != nil {
					return err
				}
			}
			r.headers[k] = text
		}
		out[s.db.Schema+"/"+strconv.FormatInt(id, 10)] = r
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// arrived reads an outlet until every committed job of the kinds is there, and returns how many came twice.
func (s *shop) arrived(o outlet, kinds ...string) (duplicates int) {
	s.t.Helper()
	got := s.received(o, kinds...)
	return len(got) - len(distinct(got))
}

// received reads an outlet until every committed job of the kinds is there, and holds what came against what was committed:
// nothing lost, nothing invented, every message as the table has it. It returns everything that came.
func (s *shop) received(o outlet, kinds ...string) []seen {
	s.t.Helper()
	due := map[string]bool{}
	for _, kind := range kinds {
		for id := range s.committed[kind] {
			due[s.db.Schema+"/"+strconv.FormatInt(id, 10)] = true
		}
	}
	got := o.read(s.t, func(all []seen) bool { return len(distinct(all)) >= len(due) })
	table := s.rows(kinds)
	for _, m := range got {
		if want, ok := table[m.id]; ok && !m.is(want) {
			s.t.Fatalf("%s: message %s: got key %v headers %v payload %.200q, want %v %v %.200q", o.to, m.id, str(m.key), m.headers, m.payload, str(want.key), want.headers, want.payload)
		}
	}
	ids := distinct(got)
	for id := range ids {
		if !due[id] {
			s.t.Errorf("%s: %s arrived and was never committed", o.to, id)
		}
	}
	for id := range due {
		if !ids[id] {
			s.t.Errorf("%s: %s is lost", o.to, id)
		}
	}
	return got
}

func (s seen) is(r row) bool {
	return str(s.key) == str(r.key) && maps.Equal(s.headers, r.headers) && bytes.Equal(s.payload, r.payload)
}

func str(s *string) string {
	if s == nil {
		return "(none)"
	}
	return "=" + *s
}

func distinct(all []seen) map[string]bool {
	ids := map[string]bool{}
	for _, m := range all {
		ids[m.id] = true
	}
	return ids
}

// extra counts the copies beyond the first, by message id.
func extra(all []seen) map[string]int {
	copies := map[string]int{}
	for _, m := range all {
		copies[m.id]++
	}
	for id, n := range copies {
		if copies[id] = n - 1; n == 1 {
			delete(copies, id)
		}
	}
	return copies
}

// statuses counts the table's rows by status, of the kinds or of all.
func (s *shop) statuses(kinds ...string) map[string]int {
	s.t.Helper()
	rs, err := s.db.Pool.Query(context.Background(), `SELECT status, count(*) FROM `+s.db.Table+` WHERE $1::text[] IS NULL OR kind = ANY($1) GROUP BY 1`, kinds)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	var status string
	var n int
	if _, err := pgx.ForEachRow(rs, []any{&status, &n}, func() error { out[status] = n; return nil }); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// drained waits until every job of the kinds (all when none are named) is done.
func (s *shop) drained(limit time.Duration, kinds ...string) {
	s.t.Helper()
	within(s.t, limit, "everything is done", func() error {
		got := s.statuses(kinds...)
		if len(got) == 1 && got["done"] > 0 {
			return nil
		}
		return fmt.Errorf("statuses: %v", got)
	})
}

// attempts lists the distinct counts of attempts in the table.
func (s *shop) attempts() []int {
	s.t.Helper()
	rs, err := s.db.Pool.Query(context.Background(), `SELECT DISTINCT attempts FROM `+s.db.Table)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rs, pgx.RowTo[int])
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(out)
	return out
}
