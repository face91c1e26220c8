package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/outbox"
)

// Order is what the examples store.
type Order struct {
	ID    int64 `json:"id"`
	Cents int64 `json:"cents"`
}

// The order and its job are committed together, or neither is.
func ExampleEnqueue() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	err = placeOrder(ctx, pool, Order{ID: 17, Cents: 1250})
	fmt.Println(err)
}

func placeOrder(ctx context.Context, pool *pgxpool.Pool, order Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders (id, cents) VALUES ($1, $2)", order.ID, order.Cents)
		if err != nil {
			return err
		}
		_, err = outbox.Enqueue(ctx, tx, outbox.Job{
			Kind:    "order.created",
			Key:     fmt.Sprintf("order-%d", order.ID),
			Payload: order,
		})
		return err
	})
}

// Many jobs are sent in one round trip, whatever driver the application has.
func ExampleEnqueueSQL() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	err = remind(context.Background(), db, []string{"ada@example.com", "bob@example.com"})
	fmt.Println(err)
}

func remind(ctx context.Context, db *sql.DB, addresses []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()

	var jobs []outbox.Job
	for _, address := range addresses {
		jobs = append(jobs, outbox.Job{
			Kind:    "send_reminder",
			Payload: map[string]string{"to": address},
			Headers: map[string]any{"campaign": "spring"},
			RunAt:   time.Now().Add(time.Hour),
		})
	}
	ids, err := outbox.EnqueueSQL(ctx, tx, jobs...)
	if err != nil {
		return err
	}
	fmt.Println(len(ids), "reminders")
	return tx.Commit()
}

// A job for a table in another schema, left to the relay's polling.
func ExampleClient() {
	client := outbox.Client{Table: "shop.jobs", NoNotify: true}

	enqueue := func(ctx context.Context, tx pgx.Tx) error {
		_, err := client.Enqueue(ctx, tx, outbox.Job{Kind: "export", Body: []byte("raw bytes")})
		return err
	}
	_ = enqueue
}

func ordersDB(t *testing.T) *testdb.DB {
	db := testdb.New(t)
	db.Exec(t, "CREATE TABLE orders (id bigint PRIMARY KEY, cents bigint NOT NULL, paid boolean NOT NULL DEFAULT false)")
	return db
}

// The examples need a database, which go test can't give them: here they have one.
func TestExamples(t *testing.T) {
	t.Parallel()
	db := ordersDB(t)
	if err := placeOrder(t.Context(), db.Pool, Order{ID: 17, Cents: 1250}); err != nil {
		t.Fatal(err)
	}
	if err := placeOrder(t.Context(), db.Pool, Order{ID: 17, Cents: 1250}); err == nil {
		t.Fatal("the same order twice: no error")
	}
	sqlDB := stdlib.OpenDB(*db.Config)
	defer func() { _ = sqlDB.Close() }()
	if err := remind(t.Context(), sqlDB, []string{"ada@example.com", "bob@example.com"}); err != nil {
		t.Fatal(err)
	}
	got := testdb.Column[string](t, db, "SELECT concat_ws(' ', kind, key, payload, headers, run_at > now()) FROM jobs ORDER BY id")
	want := []string{
		`order.created order-17 {"id": 17, "cents": 1250} f`,
		`send_reminder {"to": "ada@example.com"} {"campaign": "spring"} t`,
		`send_reminder {"to": "bob@example.com"} {"campaign": "spring"} t`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The Go in the docs is this file's, and the SQL in the docs runs.
func TestEnqueueDocs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/enqueue.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(go|sql)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	count := map[string]int{}
	for _, block := range blocks {
		language, code := block[1], block[2]
		count[language]++
		if language == "go" {
			if !strings.Contains(string(source), code) {
				t.Errorf("the docs show Go that isn't in example_test.go:\n%s", code)
			}
			continue
		}
		db := ordersDB(t)
		db.Exec(t, "INSERT INTO orders (id, cents) VALUES (17, 1250)")
		db.Exec(t, code)
		if n := testdb.One[int](t, db, "SELECT count(*) FROM jobs"); n == 0 {
			t.Errorf("this SQL in the docs enqueues nothing:\n%s", code)
		}
	}
	if count["go"] < 2 || count["sql"] < 3 {
		t.Errorf("the docs show %v blocks, want at least 2 of go and 3 of sql", count)
	}
}
