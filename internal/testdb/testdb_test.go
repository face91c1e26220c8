package testdb_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewIsMigratedAndApart(t *testing.T) {
	t.Parallel()
	a, b := testdb.New(t), testdb.New(t)
	a.Exec(t, `INSERT INTO jobs (kind, payload) VALUES ('k', '1')`)
	if got := testdb.One[int](t, a, `SELECT count(*) FROM `+a.Table); got != 1 {
		t.Errorf("jobs in the first schema: got %d, want 1", got)
	}
	if got := testdb.One[int](t, b, `SELECT count(*) FROM jobs`); got != 0 {
		t.Errorf("jobs in the second schema: got %d, want 0", got)
	}
}

func TestLegacyHasEveryStatus(t *testing.T) {
	t.Parallel()
	db := testdb.Legacy(t, 400)
	for _, status := range []string{"ready", "running", "done", "dead"} {
		if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE status = $1`, status); got != 100 {
			t.Errorf("jobs that are %s: got %d, want 100", status, got)
		}
	}
}
