package claim

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/testdb"
)

// lossy is a connection whose next answer to a commit is lost: the server has carried it out, and the client sees the
// connection break.
type lossy struct {
	net.Conn
	armed  *atomic.Int32
	losing atomic.Bool
}

func (c *lossy) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "commit") && c.armed.Add(-1) >= 0 {
		c.losing.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossy) Read(b []byte) (int, error) {
	if !c.losing.Load() {
		n, err := c.Conn.Read(b)
		if !c.losing.Load() { // a reader may have waited before the commit was written
			return n, err
		}
	}
	// All of the answer, not only its first packet: what follows the first shows that the server has ended.
	_ = c.Conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c.Conn)
	_ = c.Conn.Close()
	return 0, io.ErrUnexpectedEOF
}

func lossyPool(t testing.TB, db *testdb.DB) (*pgxpool.Pool, *atomic.Int32) {
	var armed atomic.Int32
	pool := poolWith(t, db, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // sends the text each time
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &lossy{Conn: conn, armed: &armed}, err
		}
	})
	return pool, &armed
}

// A settlement whose answer is lost is sent again, changes nothing twice, and counts no lost lease.
func TestSettleAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for _, deleting := range []bool{false, true} {
		db := testdb.New(t)
		pool, armed := lossyPool(t, db)
		q := storeOn(t, pool, Options{Table: db.Table, DeleteDone: deleting}).Queue(every)
		insert(t, db, "k", 40)
		leases := claim(t, q)
		outcomes := make([]Outcome, len(leases))
		for i := range leases {
			outcomes[i] = Outcome{Lease: &leases[i], Verdict: Verdict(i % 4), After: time.Hour, Error: "x"}
		}
		armed.Store(2)
		if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
			t.Errorf("lost %v, %v", lost, err)
		}
		if armed.Load() >= 0 {
			t.Error("no answer was lost: the test proves nothing")
		}
		if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'running'`); n != 0 {
			t.Errorf("%d jobs still running", n)
		}
		if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'ready' AND attempts = 1`); n != 10 {
			t.Errorf("%d jobs retried with one attempt, want 10", n)
		}
	}
}

// A claim whose answer is lost isn't sent again: its jobs come back when their lease ends.
func TestClaimAfterALostAnswer(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	pool, armed := lossyPool(t, db)
	q := storeOn(t, pool, Options{Table: db.Table, BatchSize: 10, Lease: time.Second}).Queue(every)
	insert(t, db, "k", 30)
	settle(t, q, claim(t, q), Outcome{Verdict: Done})
	armed.Store(1)
	if leases, err := q.Claim(t.Context(), open); err == nil || len(leases) > 0 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'running'`); n != 10 {
		t.Fatalf("%d jobs claimed, want 10: the claim was sent again", n)
	}
	got := map[int64]int{}
	eventually(t, "all jobs are claimed", func() bool {
		leases := claim(t, q)
		for _, l := range leases {
			got[l.ID] = l.Attempt
		}
		settle(t, q, leases, Outcome{Verdict: Done})
		sweep(t, q)
		return len(got) == 20
	})
}

// A context that ends doesn't cut a statement that is under way: nobody would know what it did.
func TestClaimEndsAfterItsContext(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	insert(t, db, "k", 5)
	q := newQueue(t, db, Options{})
	sweep(t, q)
	db.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION slow()`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	leases, err := q.Claim(ctx, open)
	if err != nil || len(leases) != 5 || ctx.Err() == nil {
		t.Errorf("%d leases, %v, context %v", len(leases), err, ctx.Err())
	}
	if _, err := q.Claim(ctx, open); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim after the end: %v", err)
	}
}

// Settling waits out a database that is away, and gives up with its context.
func TestSettleWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	insert(t, db, "k", 3)
	var away atomic.Bool
	pool := poolWith(t, db, func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	q := storeOn(t, pool, Options{Table: db.Table}).Queue(every)
	leases := claim(t, q)
	away.Store(true)
	pool.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := q.Settle(ctx, []Outcome{{Lease: &leases[0], Verdict: Done}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", err)
	}
	back := time.AfterFunc(300*time.Millisecond, func() { away.Store(false) })
	defer back.Stop()
	if lost := settle(t, q, leases, Outcome{Verdict: Done}); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
}
