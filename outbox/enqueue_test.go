package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inTx commits what run does in a transaction.
func inTx(t *testing.T, db *testdb.DB, run func(tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), db.Pool, run); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, db *testdb.DB, c outbox.Client, jobs ...outbox.Job) (ids []int64) {
	t.Helper()
	inTx(t, db, func(tx pgx.Tx) (err error) {
		ids, err = c.Enqueue(t.Context(), tx, jobs...)
		return err
	})
	return ids
}

// stored is what a job's row holds, as text.
type stored struct {
	ID                          int64
	Kind, Key, Payload, Body    string
	Headers, RunAt              string
	Priority, Attempts, Maximum int
	Status                      string
}

func rows(t *testing.T, db *testdb.DB) []stored {
	t.Helper()
	got, err := db.Pool.Query(t.Context(), `
		SELECT id, kind, coalesce(key, '(null)'), coalesce(payload::text, '(null)'), coalesce(encode(body, 'hex'), '(null)'),
			coalesce(headers::text, '(null)'), CASE WHEN run_at = created_at THEN 'now' ELSE (run_at AT TIME ZONE 'UTC')::text END,
			priority, attempts, max_attempts, status
		FROM jobs ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(got, pgx.RowToStructByPos[stored])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var allBytes = func() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

// varied are jobs that use every field, with the characters that array texts and SQL strings treat specially.
var varied = []outbox.Job{
	{Kind: "plain", Payload: json.RawMessage(`{"b":1, "a":1.0,"a":2.50,"e":1e2,"z":-0,"id":1546130668394913822}`)},
	{Kind: `k{},"\'é😀`, Key: `NULL`, Payload: "<&>\u2028 {\"x\\\n\t\u0001'é😀", Priority: -32768},
	{Kind: "nothing", Key: " ", Payload: json.RawMessage("null"), Headers: map[string]any{"content-type": "text/plain", `q"\`: `{"a\`, "n": 5000000000, "t": true}},
	{Kind: "bytes", Body: allBytes, Priority: 32767},
	{Kind: "empty", Body: []byte{}, Key: "\\x41"},
	{Kind: "later", Payload: 1, RunAt: time.Date(2031, 2, 3, 5, 5, 6, 123456789, time.FixedZone("", 3600))},
	{Kind: "long ago", Payload: 2, RunAt: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)},
	{Kind: "far away", Payload: 3, RunAt: time.Date(294275, 12, 31, 23, 59, 59, 999999999, time.UTC)},
	{Kind: "tries", Payload: 4, MaxAttempts: 2147483647},
	{Kind: "once", Payload: 5, MaxAttempts: 1},
}

var variedRows = []stored{
	{0, "plain", "(null)", `{"a": 2.50, "b": 1, "e": 100, "z": 0, "id": 1546130668394913822}`, "(null)", "(null)", "now", 0, 0, 5, "ready"},
	{0, `k{},"\'é😀`, `NULL`, "\"<&>\u2028 {\\\"x\\\\\\n\\t\\u0001'é😀\"", "(null)", "(null)", "now", -32768, 0, 5, "ready"},
	{0, "nothing", " ", "null", "(null)", `{"n": 5000000000, "t": true, "q\"\\": "{\"a\\", "content-type": "text/plain"}`, "now", 0, 0, 5, "ready"},
	{0, "bytes", "(null)", "(null)", fmt.Sprintf("%x", allBytes), "(null)", "now", 32767, 0, 5, "ready"},
	{0, "empty", "\\x41", "(null)", "", "(null)", "now", 0, 0, 5, "ready"},
	{0, "later", "(null)", "1", "(null)", "(null)", "2031-02-03 04:05:06.123456", 0, 0, 5, "ready"},
	{0, "long ago", "(null)", "2", "(null)", "(null)", "0001-01-02 00:00:00", 0, 0, 5, "ready"},
	{0, "far away", "(null)", "3", "(null)", "(null)", "294275-12-31 23:59:59.999999", 0, 0, 5, "ready"},
	{0, "tries", "(null)", "4", "(null)", "(null)", "now", 0, 0, 2147483647, "ready"},
	{0, "once", "(null)", "5", "(null)", "(null)", "now", 0, 0, 1, "ready"},
}

// ways are the clients and modes of the protocol that must all store the same.
var ways = map[string]func(ctx context.Context, db *testdb.DB, jobs []outbox.Job) ([]int64, error){
	"cache_statement": inMode(pgx.QueryExecModeCacheStatement),
	"cache_describe":  inMode(pgx.QueryExecModeCacheDescribe),
	"describe_exec":   inMode(pgx.QueryExecModeDescribeExec),
	"exec":            inMode(pgx.QueryExecModeExec),
	"simple_protocol": inMode(pgx.QueryExecModeSimpleProtocol),
	"database/sql with pgx": func(ctx context.Context, db *testdb.DB, jobs []outbox.Job) ([]int64, error) {
		return overSQL(ctx, stdlib.OpenDB(*db.Config), jobs)
	},
	"database/sql with pq": func(ctx context.Context, db *testdb.DB, jobs []outbox.Job) ([]int64, error) {
		connector, err := pq.NewConnector(db.URL + "&sslmode=disable")
		if err != nil {
			return nil, err
		}
		return overSQL(ctx, sql.OpenDB(connector), jobs)
	},
}

func inMode(mode pgx.QueryExecMode) func(context.Context, *testdb.DB, []outbox.Job) ([]int64, error) {
	return func(ctx context.Context, db *testdb.DB, jobs []outbox.Job) (ids []int64, err error) {
		config := db.Config.Copy()
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close(ctx)) }()
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			ids, err = outbox.Enqueue(ctx, tx, jobs...)
			return err
		})
		return ids, err
	}
}

func overSQL(ctx context.Context, db *sql.DB, jobs []outbox.Job) (ids []int64, err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if ids, err = outbox.EnqueueSQL(ctx, tx, jobs...); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return ids, tx.Commit()
}

func TestEveryWayStoresTheSame(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			ids, err := way(t.Context(), db, varied)
			if err != nil {
				t.Fatal(err)
			}
			got := rows(t, db)
			for i := range got {
				if i < len(ids) && got[i].ID != ids[i] {
					t.Errorf("row %d: got id %d, returned was %d", i, got[i].ID, ids[i])
				}
				got[i].ID = 0
			}
			if len(ids) != len(varied) || !reflect.DeepEqual(got, variedRows) {
				t.Errorf("got  %+v\nwant %+v", got, variedRows)
			}
		})
	}
}

// counter counts the queries of a transaction.
type counter struct {
	pgx.Tx
	queries int
}

func (c *counter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.queries++
	return c.Tx.Query(ctx, sql, args...)
}

func TestManyJobsInOneRoundTripAndInOrder(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	jobs := make([]outbox.Job, 2500)
	for i := range jobs {
		jobs[i] = outbox.Job{Kind: "n", Payload: i}
	}
	var ids []int64
	for _, c := range []struct{ jobs, queries int }{{0, 0}, {1, 1}, {1000, 1}, {2500, 3}} {
		inTx(t, db, func(tx pgx.Tx) (err error) {
			counted := &counter{Tx: tx}
			ids, err = outbox.Enqueue(t.Context(), counted, jobs[:c.jobs]...)
			if len(ids) != c.jobs || counted.queries != c.queries {
				t.Errorf("%d jobs: got %d ids by %d queries, want %d queries", c.jobs, len(ids), counted.queries, c.queries)
			}
			return err
		})
	}
	got := testdb.Column[int](t, db, `SELECT j.payload::int FROM unnest($1::bigint[]) WITH ORDINALITY AS i (id, place) JOIN jobs j USING (id) ORDER BY place`, ids)
	for i, n := range got {
		if n != i {
			t.Fatalf("id %d of those returned is that of job %d", i, n)
		}
	}
	if len(got) != len(jobs) || !slices.IsSorted(ids) {
		t.Errorf("got %d rows with sorted ids %v, want %d", len(got), slices.IsSorted(ids), len(jobs))
	}
}

// A refused job costs the application nothing but that job: no statement was sent.
func TestB01RefusalLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, "CREATE TABLE orders (id int)")
	good := outbox.Job{Kind: "k", Payload: 1}
	inTx(t, db, func(tx pgx.Tx) error {
		counted := &counter{Tx: tx}
		for _, text := range []string{`{"a":"x\u0000y"}`, `{"x\u0000":1}`, `{"a":["\u0000"]}`, `"\ud800"`, "{\"a\":\"\x01\"}", `1e200000`} {
			_, err := outbox.Enqueue(t.Context(), counted, good, outbox.Job{Kind: "k", Payload: json.RawMessage(text)})
			if !errors.Is(err, outbox.ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", text, err)
			}
		}
		if counted.queries != 0 {
			t.Errorf("%d queries reached the transaction", counted.queries)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES (1)"); err != nil {
			return err
		}
		_, err := outbox.Enqueue(t.Context(), counted, good)
		return err
	})
	if n := testdb.One[int](t, db, "SELECT (SELECT count(*) FROM jobs) * 10 + (SELECT count(*) FROM orders)"); n != 11 {
		t.Errorf("got %d jobs and orders, want 1 and 1", n)
	}
}

// B01: plain SQL is refused by the database itself, before anything is half written; a savepoint keeps the transaction.
func TestB01PlainSQL(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, "CREATE TABLE orders (id int)")
	insert := func(ctx context.Context, tx pgx.Tx, text string) error {
		return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { // a savepoint
			_, err := inner.Exec(ctx, "INSERT INTO jobs (kind, payload) VALUES ('k', $1::text::jsonb)", text)
			return err
		})
	}
	inTx(t, db, func(tx pgx.Tx) error {
		for _, text := range []string{`{"a":"x\u0000y"}`, `{"x\u0000":1}`, `{"a":["\u0000"]}`, `"\ud800"`, "{\"a\":\"\x01\"}"} {
			if err := insert(t.Context(), tx, text); err == nil {
				t.Errorf("%s is stored", text)
			}
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES (1)"); err != nil {
			return err
		}
		return insert(t.Context(), tx, `{"a":"\u0001"}`)
	})
	if got := testdb.Column[string](t, db, "SELECT payload::text FROM jobs, orders"); len(got) != 1 || got[0] != `{"a": "\u0001"}` {
		t.Errorf("stored %q, want the one that is good, as it was", got)
	}
}

func TestRolledBackJobsAreGone(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	never := errors.New("no")
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := outbox.Enqueue(t.Context(), tx, outbox.Job{Kind: "k", Payload: 1})
		return errors.Join(never, err)
	})
	if !errors.Is(err, never) || len(rows(t, db)) != 0 {
		t.Errorf("got %v and rows %v", err, rows(t, db))
	}
}

func TestDatabaseErrorsAreNamed(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := outbox.Enqueue(t.Context(), tx, outbox.Job{Kind: "k", Payload: 1})
		return err
	})
	if err == nil || !strings.HasPrefix(err.Error(), "enqueue: ") || errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("no table: got %v, want an error that begins with enqueue: and isn't ErrInvalid", err)
	}
}

// Rows that a trigger drops silently are an error of both forms, and the transaction can still be rolled back.
func TestDroppedRowsAreAnError(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `CREATE FUNCTION drop_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE NEW.kind WHEN 'dropped' THEN NULL ELSE NEW END; END $$`)
	db.Exec(t, "CREATE TRIGGER drop_some BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION drop_some()")
	jobs := []outbox.Job{{Kind: "kept", Payload: 1}, {Kind: "dropped", Payload: 1}}
	const want = "enqueue: 1 of 2 jobs were inserted"
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := outbox.Enqueue(t.Context(), tx, jobs...)
		return err
	})
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s …", err, want)
	}
	other := stdlib.OpenDB(*db.Config)
	defer func() { _ = other.Close() }()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := outbox.EnqueueSQL(t.Context(), tx, jobs...); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("database/sql: got %v, want %s …", err, want)
	}
}

func TestMaxAttemptsIsTheTablesOwn(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, "ALTER TABLE jobs ALTER COLUMN max_attempts SET DEFAULT 9")
	enqueue(t, db, outbox.Client{}, outbox.Job{Kind: "a", Payload: 1}, outbox.Job{Kind: "b", Payload: 1, MaxAttempts: 3}, outbox.Job{Kind: "c", Payload: 1})
	if got := testdb.Column[int](t, db, "SELECT max_attempts FROM jobs ORDER BY id"); !slices.Equal(got, []int{9, 3, 9}) {
		t.Errorf("got %v, want 9, 3, 9", got)
	}
}

// Commits wake a listener unless told not to; a table elsewhere has a channel of its own. The notification that must
// come is sent after the one that must not, and Postgres keeps the order of commits.
func TestNotify(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	config := db.Config.Copy()
	delete(config.RuntimeParams, "search_path") // the client's table must be enough
	listener, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close(context.WithoutCancel(t.Context())) }()
	if _, err := listener.Exec(t.Context(), "LISTEN jobs_ready"); err != nil {
		t.Fatal(err)
	}
	sender, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close(context.WithoutCancel(t.Context())) }()
	pids := map[bool]uint32{}
	for _, quiet := range []bool{true, false} {
		err := pgx.BeginFunc(t.Context(), sender, func(tx pgx.Tx) error {
			client := outbox.Client{Table: db.Table, NoNotify: quiet}
			_, err := client.Enqueue(t.Context(), tx, outbox.Job{Kind: "k", Payload: quiet})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		pids[quiet] = sender.PgConn().PID()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("no notification: %v", err)
		}
		if n.PID != pids[false] {
			continue // another test's, the channel's name is the same in each schema
		}
		break
	}
	// What else this sender sent would have come before: only one of its two commits may notify.
	if _, err := sender.Exec(t.Context(), "SELECT pg_notify('jobs_ready', 'last')"); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := listener.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.PID == pids[false] {
			if n.Payload != "last" {
				t.Errorf("a second notification, %q: NoNotify notified", n.Payload)
			}
			return
		}
	}
}
