package claim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/testdb"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// poolWith opens a pool on the test's schema with a changed configuration.
func poolWith(t testing.TB, db *testdb.DB, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func storeOn(t testing.TB, pool *pgxpool.Pool, o Options) *Store {
	t.Helper()
	s, err := New(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Everything works the same in every exec mode, whatever the session's formats are.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			pool := poolWith(t, db, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				for name, value := range map[string]string{"DateStyle": "German", "TimeZone": "Asia/Kathmandu", "bytea_output": "escape", "IntervalStyle": "sql_standard", "statement_timeout": "20s"} {
					c.ConnConfig.RuntimeParams[name] = value
				}
			})
			exercise(t, db, storeOn(t, pool, Options{Table: db.Table}))
			if got := testdb.One[string](t, db, "SELECT current_setting('enable_sort')"); got != "on" {
				t.Errorf("enable_sort is %s after it", got)
			}
		})
	}
}

// exercise runs every statement, and checks what they read.
func exercise(t *testing.T, db *testdb.DB, s *Store) {
	t.Helper()
	ctx := t.Context()
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, headers, priority, delivered, run_at, created_at) VALUES
		('k', 'é', '{"a": "\\ \" '' é"}', '{"h": 1}', -3, '{"a,b","c\"d","e\\f",NULL}', '2026-01-02T03:04:05.678901Z', NULL);
		INSERT INTO jobs (kind, body, run_at) VALUES ('k', '\x00ff5c27', '-infinity');
		INSERT INTO jobs (kind, payload) SELECT 'k', to_jsonb(g) FROM generate_series(1, 18) g`)
	q := s.Queue(every)
	leases, err := q.Claim(ctx, func(Pair) Gate { return Gate{Open: true, Lacking: []string{"c\"d", "x\\,"}} })
	if err != nil || len(leases) != 20 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	a, b := leases[0], leases[1]
	got := fmt.Sprintf("%s %s %s %d %q %s %v | %x %v", *a.Key, a.Payload, a.Headers, a.Priority, a.Delivered, a.RunAt.Format(time.RFC3339Nano), a.CreatedAt.IsZero(), b.Body, b.RunAt.IsZero())
	want := `é {"a": "\\ \" ' é"} {"h": 1} -3 ["a,b" "c\"d" "e\\f"] 2026-01-02T03:04:05.678901Z true | 00ff5c27 true`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	held := make([]*Lease, len(leases))
	outcomes := make([]Outcome, len(leases))
	for i := range leases {
		held[i] = &leases[i]
		outcomes[i] = Outcome{Lease: &leases[i], Verdict: Verdict(i % 4), After: time.Duration(i) * time.Minute, Error: "it's \\ \"é\"", Delivered: []string{`x"y\z`}}
	}
	if lost, err := q.Extend(ctx, held); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if lost, err := q.Settle(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if n := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE delivered @> ARRAY['x"y\z'] AND (last_error IS NULL OR last_error = 'it''s \ "é"')`); n != 20 {
		t.Errorf("%d of 20 jobs as settled", n)
	}
	db.Exec(t, `UPDATE jobs SET status = 'running', lease_token = 7, leased_until = now() - interval '1 s', run_at = now() - interval '1 hour' WHERE status = 'ready'`)
	if leases, err := q.Claim(ctx, open); err != nil || len(leases) > 0 {
		t.Errorf("claimed %d, %v", len(leases), err)
	}
	if swept, err := q.Sweep(ctx); err != nil || swept.Reaped["k"] != 10 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	f, err := s.Figures(ctx)
	if err != nil || len(f.Kinds) != 1 || f.Kinds[0].Dead != 5 || f.Kinds[0].Ready != 10 {
		t.Errorf("figures %+v, %v", f, err)
	}
	n := 0
	filter := Filter{Error: `\ "é"`, Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	if err := s.ListDead(ctx, filter, func(d DeadJob) error { n++; return nil }); err != nil || n != 5 {
		t.Errorf("listed %d dead jobs, %v", n, err)
	}
	if c, err := s.RequeueDead(ctx, Filter{IDs: []int64{a.ID + 3, 1 << 40, a.ID}}, false); err != nil || c != (Changed{1, 1, 1}) {
		t.Errorf("requeued %+v, %v", c, err)
	}
	if d, ok, err := s.GetDead(ctx, a.ID+7); err != nil || !ok || string(d.Payload) == "" || d.FinishedAt.IsZero() {
		t.Errorf("dead job %+v, %v, %v", d, ok, err)
	}
	if c, err := s.DiscardDead(ctx, Filter{Kind: "k"}, false); err != nil || c != (Changed{4, 0, 0}) {
		t.Errorf("discarded %+v, %v", c, err)
	}
	if n, err := q.Clean(ctx, 0, 0); err != nil || n != 5 {
		t.Errorf("cleaned %d, %v", n, err)
	}
}

// Through a pooler that gives the session to somebody else after each transaction everything works as well, and none of
// a claim's settings stays behind.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	url := bouncer(t, db)
	for _, mode := range modes[1:] {
		pool := poolWith(t, db, func(c *pgxpool.Config) {
			at, err := pgxpool.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			*c = *at
			c.ConnConfig.DefaultQueryExecMode = mode
		})
		s := storeOn(t, pool, Options{Table: db.Table})
		db.Exec(t, "DELETE FROM jobs")
		exercise(t, db, s)
		db.Exec(t, "DELETE FROM jobs")
		insert(t, db, "k", 2000)
		errs := make(chan error)
		for range 8 {
			q := s.Queue(every)
			go func() {
				for range 10 {
					leases, err := q.Claim(t.Context(), open)
					if err != nil {
						errs <- err
						return
					}
					outcomes := make([]Outcome, len(leases))
					for i := range leases {
						outcomes[i] = Outcome{Lease: &leases[i], Verdict: Done}
					}
					if lost, err := q.Settle(t.Context(), outcomes); err != nil || len(lost) > 0 {
						errs <- fmt.Errorf("lost %v: %w", lost, err)
						return
					}
				}
				errs <- nil
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("%v: %v", mode, err)
			}
		}
		var sorts, commits string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting('enable_sort'), current_setting('synchronous_commit')").Scan(&sorts, &commits); err != nil || sorts != "on" || commits != "on" {
			t.Errorf("%v: enable_sort %s and synchronous_commit %s stayed behind, %v", mode, sorts, commits, err)
		}
	}
}

// bouncer starts PgBouncer in transaction mode in front of the test's database, as a user that isn't root.
func bouncer(t *testing.T, db *testdb.DB) (url string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path = "/usr/sbin/pgbouncer"; !exists(path) {
			t.Fatal("pgbouncer is not installed: install the package pgbouncer")
		}
	}
	dir, err := os.MkdirTemp("", "relay-bouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := db.Config
	port := freePort(t)
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", at.Host, at.Port, at.Database, at.User)
	if at.Password != "" {
		server += " password='" + strings.ReplaceAll(at.Password, "'", "''") + "'"
	}
	ini := fmt.Sprintf(`[databases]
it = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = any
pool_mode = transaction
default_pool_size = 3
unix_socket_dir =
ignore_startup_parameters = search_path,extra_float_digits
`, server, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, file)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody(t)}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "pgbouncer answers", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return fmt.Sprintf("postgres://any@127.0.0.1:%d/it?sslmode=disable", port)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func nobody(t *testing.T) *syscall.Credential {
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// lossy is a connection whose next answer to a commit is lost: the server has carried it out, and the client sees the
// connection break.
type lossy struct {
	net.Conn
	armed  *atomic.Int32
	losing bool
}

func (c *lossy) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "commit") && c.armed.Add(-1) >= 0 {
		c.losing = true
	}
	return c.Conn.Write(b)
}

func (c *lossy) Read(b []byte) (int, error) {
	if !c.losing {
		return c.Conn.Read(b)
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
