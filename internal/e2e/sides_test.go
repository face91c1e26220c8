package e2e

import (
	"context"
	"crypto/md5"
	endian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

// The statements of the well-known design, with the one condition that workers beside a relay add to their claim.
const (
	guardedClaim = `UPDATE jobs SET status = 'running', attempts = attempts + 1, leased_until = now() + interval '30 seconds'
WHERE id = (SELECT id FROM jobs WHERE status = 'ready' AND run_at <= now() AND kind = $1 AND NOT relay_owns(kind, key, id)
            ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, attempts`
	oldComplete = `UPDATE jobs SET status = 'done', leased_until = NULL WHERE id = $1 AND attempts = $2 AND status = 'running'`
	oldReap     = `UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END, leased_until = NULL,
    last_error = 'lease expired'
WHERE id IN (SELECT id FROM jobs WHERE status = 'running' AND leased_until < now() ORDER BY leased_until LIMIT 100 FOR UPDATE SKIP LOCKED)`
)

// oldWorkers work on a kind as the workers of the well-known design do, and write down what they did.
type oldWorkers struct {
	kind string
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	did    map[int64]int // how often each job was carried out
	errors []error
}

// startOldWorkers starts n workers and a reaper, each on a connection of its own.
func startOldWorkers(t *testing.T, db *testdb.DB, kind string, n int) *oldWorkers {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &oldWorkers{kind: kind, stop: stop, did: map[int64]int{}}
	t.Cleanup(w.end)
	for range n {
		w.start(ctx, t, db, w.work, 20*time.Millisecond)
	}
	w.start(ctx, t, db, w.reap, time.Second)
	return w
}

// end lets each end what it does, and waits.
func (w *oldWorkers) end() {
	w.stop()
	w.wg.Wait()
}

func (w *oldWorkers) start(ctx context.Context, t *testing.T, db *testdb.DB, turn func(*pgx.Conn) (bool, error), idle time.Duration) {
	t.Helper()
	conn, err := pgx.ConnectConfig(ctx, db.Config)
	if err != nil {
		t.Fatal(err)
	}
	// A queue's statistics are always stale: without the first two the planner may sort all that waits for each job, as the
	// docs say. Without the last one the machine's disk decides how fast they are.
	if _, err := conn.Exec(ctx, "SET enable_sort = off; SET enable_bitmapscan = off; SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	w.wg.Go(func() {
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			more, err := turn(conn)
			if err != nil {
				w.mu.Lock()
				w.errors = append(w.errors, err)
				w.mu.Unlock()
			}
			if !more {
				select {
				case <-ctx.Done():
				case <-time.After(idle):
				}
			}
		}
	})
}

func (w *oldWorkers) work(conn *pgx.Conn) (more bool, err error) {
	ctx := context.Background()
	var id int64
	var attempts int
	switch err := conn.QueryRow(ctx, guardedClaim, w.kind).Scan(&id, &attempts); {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	w.mu.Lock()
	w.did[id]++
	w.mu.Unlock()
	tag, err := conn.Exec(ctx, oldComplete, id, attempts)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("job %d was taken from an old worker", id)
	}
	return true, err
}

func (w *oldWorkers) reap(conn *pgx.Conn) (bool, error) {
	_, err := conn.Exec(context.Background(), oldReap)
	return false, err
}

// ledger notes every claim as the database makes it: which side, and when.
const ledger = `CREATE UNLOGGED TABLE ledger (job bigint NOT NULL, relay boolean NOT NULL, at timestamptz NOT NULL);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO %[1]s.ledger VALUES (NEW.id, NEW.lease_token IS NOT NULL, clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER note_claim AFTER UPDATE OF status ON %[1]s.jobs FOR EACH ROW
WHEN (NEW.status = 'running' AND OLD.status <> 'running') EXECUTE FUNCTION note_claim()`

// entry is one claim, and what relay_owns divides by.
type entry struct {
	Job   int64
	Key   string // the id of a job without one
	Relay bool
	At    time.Time
}

func claims(t *testing.T, db *testdb.DB) []entry {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT l.job, coalesce(j.key, j.id::text), l.relay, l.at FROM ledger l JOIN jobs j ON j.id = l.job ORDER BY l.at`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// owned is the published formula of relay_owns.
func owned(key string, share int) bool {
	sum := md5.Sum([]byte(key))
	return endian.BigEndian.Uint32(sum[:4])%100 < uint32(share)
}

// load enqueues at a steady rate until it ends: mostly keys that come once, while there are some left, else keys of a pool;
// a tenth has hot keys or none.
type load struct {
	kind  string
	rate  int
	fresh atomic.Int64 // keys that come once, still to be enqueued
	sent  atomic.Int64
}

func (l *load) run(ctx context.Context, db *testdb.DB) error {
	const tick = 10 * time.Millisecond
	start := time.Now()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		owed := int(time.Since(start).Seconds()*float64(l.rate)) - int(l.sent.Load())
		keys := make([]*string, max(0, min(owed, l.rate/5)))
		for i := range keys {
			keys[i] = l.key(l.sent.Add(1))
		}
		if _, err := db.Pool.Exec(context.Background(), `INSERT INTO jobs (kind, key, payload) SELECT $1, k, '{"n": 1}' FROM unnest($2::text[]) k`, l.kind, keys); err != nil {
			return err
		}
	}
}

func (l *load) key(n int64) *string {
	var key string
	switch {
	case n%20 == 0:
		return nil
	case n%20 == 10:
		key = "hot-" + strconv.FormatInt(n/20%50, 10)
	case l.fresh.Load() > 0:
		key = "fresh-" + strconv.FormatInt(l.fresh.Add(-1), 10)
	default:
		key = "pool-" + strconv.FormatInt(n%2000, 10)
	}
	return &key
}

// command runs one command of the relay on the test's table and returns what it printed.
func command(t *testing.T, db *testdb.DB, args ...string) string {
	t.Helper()
	cmd := exec.Command(plain, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RELAY_DATABASE_URL=" + db.URL, "RELAY_TABLE=" + db.Table, "RELAY_LOG_FORMAT=text"}
	var failed *exec.ExitError
	out, err := cmd.Output()
	if errors.As(err, &failed) {
		t.Fatalf("relay %v: %v\n%s", args, err, failed.Stderr)
	} else if err != nil {
		t.Fatalf("relay %v: %v", args, err)
	}
	return string(out)
}

// part is what `kinds list` says of a kind.
type part struct {
	Kind    string
	Share   int
	Since   time.Time
	Capped  bool
	Percent *float64 `json:"relay_percent"`
	Notes   []string
}

func kindOf(t *testing.T, db *testdb.DB, kind string) part {
	t.Helper()
	var p part
	if err := json.Unmarshal([]byte(command(t, db, "kinds", "list", "--json")), &p); err != nil || p.Kind != kind {
		t.Fatalf("kinds list: %+v, %v", p, err)
	}
	return p
}
