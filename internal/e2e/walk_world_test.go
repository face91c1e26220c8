package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// do what the page tells in words.
func (w *walk) do(s step) {
	w.t.Helper()
	var n int64
	if _, err := fmt.Sscanf(s.mark, "wait for %d jobs", &n); err == nil {
		w.wait(n)
		return
	}
	switch s.mark {
	case "deploy the old workers":
		w.old.deploy(w.t, guarded)
	case "fill the key":
		w.producer.keyed.Store(true)
	case "start the relays":
		w.relays = []*process{w.relay(), w.relay()}
		w.env = append(w.env, "RELAY_ADMIN_ADDR="+w.relays[0].admin)
	case "restart the relays":
		for i, p := range w.relays {
			w.terminate(p)
			w.relays[i] = w.relay()
		}
		w.env = append(w.env, "RELAY_ADMIN_ADDR="+w.relays[0].admin)
	case "stop the old workers":
		w.old.end(w.t)
		w.reaper.end()
	default:
		w.t.Errorf("line %d: nobody knows how to %q", s.line, s.mark)
	}
}

// wait until so many more jobs are done.
func (w *walk) wait(n int64) {
	w.t.Helper()
	const done = `SELECT count(*) FROM jobs WHERE status = 'done'`
	from := value[int64](w.t, w.db, done)
	eventually(w.t, fmt.Sprintf("%d more jobs are done", n), func() error {
		sleep(w.t, 100*time.Millisecond)
		return atMost(from+n-value[int64](w.t, w.db, done), 0)
	})
}

func (w *walk) relay() *process {
	w.t.Helper()
	return startBinary(w.t, plain, w.db, w.mail.settings.with(w.crm.settings).with(settings{"ROUTES_FILE": filepath.Join(w.dir, "routes.yml")}))
}

func (w *walk) terminate(p *process) {
	w.t.Helper()
	if code := p.terminate(generous); code != 0 {
		w.t.Errorf("exit code of a relay: %d", code)
	}
}

// producer enqueues some 200 jobs a second, as plain SQL.
type producer struct {
	db    *testdb.DB
	kind  string
	keyed atomic.Bool // half of the jobs have a key
	stop  func()
}

func (p *producer) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	p.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(p.stop)
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			sql, args := `INSERT INTO jobs (kind, payload) SELECT $1, '{"to": "you"}' FROM generate_series(1, 4)`, []any{p.kind}
			if p.keyed.Load() && n%2 == 0 {
				sql = `INSERT INTO jobs (kind, key, payload) SELECT $1, 'customer-' || ($2::int + g) % 2000, '{"to": "you"}' FROM generate_series(1, 4) g`
				args = append(args, 4*n)
			}
			if _, err := p.db.Pool.Exec(context.Background(), sql, args...); err != nil {
				t.Errorf("enqueue: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// checkAll: each job was done once by an old worker or by a relay, and the new consumer has each of them once.
func (w *walk) checkAll() {
	w.t.Helper()
	w.producer.stop()
	eventually(w.t, "everything is done", func() error {
		sleep(w.t, 200*time.Millisecond)
		return atMost(value[int64](w.t, w.db, `SELECT count(*) FROM jobs WHERE status <> 'done'`), 0)
	})
	for _, p := range w.relays {
		w.terminate(p)
	}
	ids := testdb.Column[int64](w.t, w.db, `SELECT id FROM jobs WHERE replay_of IS NULL`)
	relayed := value[int](w.t, w.db, `SELECT count(*) FROM jobs WHERE lease_token IS NOT NULL AND replay_of IS NULL`)
	old, mail, crm := w.old.sent(w.t), w.arrivals(w.mail, relayed), w.arrivals(w.crm, len(ids))
	byOld, byRelays := 0, 0
	for _, id := range ids {
		byOld, byRelays = byOld+old[id], byRelays+mail[id]
		if old[id]+mail[id] != 1 || crm[id] != 1 {
			w.t.Errorf("job %d: %d times by old workers, %d times on the topic, %d times at the new consumer", id, old[id], mail[id], crm[id])
		}
	}
	w.t.Logf("%d jobs: %d by old workers, %d by relays; the new consumer has %d", len(ids), byOld, byRelays, len(crm))
	if byOld < 100 || byRelays < 100 {
		w.t.Errorf("only %d jobs by old workers and %d by relays: the walk shows nothing", byOld, byRelays)
	}
}

func (w *walk) arrivals(o outlet, want int) map[int64]int {
	w.t.Helper()
	counts := map[int64]int{}
	for _, s := range o.read(w.t, func(all []seen) bool { return len(distinct(all)) >= want }) {
		id, err := strconv.ParseInt(strings.TrimPrefix(s.id, w.db.Schema+"/"), 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		counts[id]++
	}
	return counts
}
