package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/testdb"
)

// P7: while the relay waits for a slow broker it has no transaction open, and none of its transactions lasts over a
// second. Looked at from outside, as often as possible, with five times the bound.
func TestP7NoTransactionDuringPublishing(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o, l, env := slowly(t, db)
	l.delay(600 * time.Millisecond)
	named := *db
	named.URL += "&application_name=" + db.Schema
	s := newShop(t, db)
	s.trade(600, "r")
	start(t, &named, env)
	var looks, seen int
	within(t, 2*generous, "all are done", func() error {
		looks++
		var transactions, longest int
		err := db.Pool.QueryRow(context.Background(), `SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%'), coalesce(max(extract(epoch FROM clock_timestamp() - xact_start) * 1000), 0)::int
			FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL AND state <> 'idle'`, db.Schema).Scan(&transactions, &longest)
		if err != nil {
			t.Fatal(err)
		}
		seen += transactions
		if longest > 5000 {
			t.Errorf("a transaction of the relay is open for %d ms", longest)
		}
		if got := s.statuses(); got["done"] != 600 {
			return fmt.Errorf("statuses: %v", got)
		}
		return nil
	})
	// Two workers publish all the time. With a transaction open meanwhile every look would see two that do nothing.
	if seen > looks/2 {
		t.Errorf("%d looks saw %d transactions that are open and do nothing: they wait for the broker", looks, seen)
	}
	t.Logf("%d looks, %d open transactions that did nothing", looks, seen)
	if n := value[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, db.Schema); n == 0 {
		t.Error("no connection of the relay was seen: the test tests nothing")
	}
	s.arrived(o, "r")
}
