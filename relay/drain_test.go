package relay

import (
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks"
)

// A batch that could not be settled while the relay ran says nothing of a drain weeks later, in which all went well.
func TestDrainLongAfterABatchWasLeft(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `CREATE FUNCTION `+db.Schema+`.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON `+db.Table+` FOR EACH ROW WHEN (NEW.status = 'done') EXECUTE FUNCTION `+db.Schema+`.refuse()`)
	e := run(t, db, options{routes: one("a", "s:x"), sinks: map[string]sinks.Sink{"s": &script{}}, change: func(c *Config, store *claim.Options) {
		store.Lease, c.PublishTimeout = 2*time.Second, time.Second
	}})
	e.enqueue("a", 1)
	e.eventually("it is left and claimed once more", func() bool { return e.jobs("a")["running/2"] == 1 }, func() any { return e.jobs("a") })
	db.Exec(t, `DROP TRIGGER refuse ON `+db.Table)
	e.eventually("it is done", func() bool { return e.jobs("a")["done/2"]+e.jobs("a")["done/3"] == 1 }, func() any { return e.jobs("a") })
	if err := e.stop(); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}
