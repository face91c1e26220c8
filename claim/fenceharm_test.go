package claim

import (
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// The walk must fail when a part of the fence is missing.
func TestFenceWalkFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	const token, held, notDone = "AND j.lease_token = $1::bigint", "AND j.status <> ALL ('{ready,done,dead}')", "AND j.status <> 'done'"
	for name, harm := range map[string]func(w *fenceWalk){
		"no trigger that clears the token": func(w *fenceWalk) { w.alter("IF TG_OP = 'UPDATE'", "IF false AND TG_OP = 'UPDATE'") },
		"a trigger that looks at the status alone": func(w *fenceWalk) {
			w.alter("AND (OLD.status <> 'running' OR NEW.attempts <> OLD.attempts)", "AND OLD.status <> 'running'")
		},
		"a trigger that lets done jobs be put back with their token": func(w *fenceWalk) {
			w.alter("OLD.status = 'done' AND NEW.status <> 'done'", "false")
		},
		"attempts instead of the token": func(w *fenceWalk) {
			w.byAttempts = true
			w.without(&w.sql().done, "j.lease_token = $2", "j.attempts = $2")
		},
		"done without the token": func(w *fenceWalk) { w.without(&w.sql().done, "j.lease_token = $2::bigint", "$2::bigint > 0") },
		"done although done":     func(w *fenceWalk) { w.without(&w.sql().done, notDone, "") },
		"delete without the token": func(w *fenceWalk) {
			w.without(&w.deleting.s.sql.doneDelete, "j.lease_token = $2::bigint", "$2::bigint > 0")
		},
		"retry without the token":       func(w *fenceWalk) { w.without(&w.sql().retry, token, "AND $1::bigint > 0") },
		"retry without the status":      func(w *fenceWalk) { w.without(&w.sql().retry, held, "") },
		"retry that keeps the token":    func(w *fenceWalk) { w.without(&w.sql().retry, "lease_token = NULL,", "") },
		"dead without the token":        func(w *fenceWalk) { w.without(&w.sql().dead, token, "AND $1::bigint > 0") },
		"dead without the status":       func(w *fenceWalk) { w.without(&w.sql().dead, held, "") },
		"release without the token":     func(w *fenceWalk) { w.without(&w.sql().release, token, "AND $1::bigint > 0") },
		"release without the status":    func(w *fenceWalk) { w.without(&w.sql().release, held, "") },
		"release that counts":           func(w *fenceWalk) { w.without(&w.sql().release, "attempts = greatest(j.attempts, 1) - 1,", "") },
		"done that forgets deliveries":  func(w *fenceWalk) { w.without(&w.sql().done, "j.delivered <@ $3::text[]", "true") },
		"retry that forgets deliveries": func(w *fenceWalk) { w.without(&w.sql().retry, "ELSE o.delivered::text[]", "ELSE NULL") },
		"extend without the token":      func(w *fenceWalk) { w.without(&w.sql().extend, "j.lease_token = $2::bigint", "$2::bigint > 0") },
		"extend without the status":     func(w *fenceWalk) { w.without(&w.sql().extend, held, "") },
		"reap that takes anybody's":     func(w *fenceWalk) { w.without(&w.sql().reap, "AND j.lease_token IS NOT NULL", "") },
		"reap before the end": func(w *fenceWalk) {
			w.without(&w.sql().reap, "AND coalesce(j.leased_until, '-infinity') < statement_timestamp()", "")
		},
		"requeue that keeps the token": func(w *fenceWalk) { w.without(&w.sql().requeue, "lease_token = NULL,", "") },
		"requeue of what isn't dead":   func(w *fenceWalk) { w.without(&w.sql().requeue, "AND j.status = 'dead'", "") },
		"claim that keeps the token": func(w *fenceWalk) {
			w.without(&w.sql().claim, "lease_token = $12::bigint", "lease_token = coalesce(j.lease_token, $12::bigint)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFenceWalk(t, harm)
			w.walk()
			if len(w.problems) == 0 {
				t.Fatalf("nothing found in %d states and %d steps", len(w.seen), w.steps)
			}
			t.Logf("after %d steps: %s", w.steps, w.problems[0])
		})
	}
}

// without changes a statement, which must hold what is replaced.
func (w *fenceWalk) without(sql *string, what, with string) {
	w.t.Helper()
	if !strings.Contains(*sql, what) {
		w.t.Fatalf("the statement doesn't hold %q:\n%s", what, *sql)
	}
	*sql = strings.Replace(*sql, what, with, 1)
}

// alter changes the trigger's function.
func (w *fenceWalk) alter(what, with string) {
	w.t.Helper()
	function := testdb.One[string](w.t, w.db, `SELECT pg_get_functiondef('relay_stamp'::regproc)`)
	w.without(&function, what, with)
	w.db.Exec(w.t, function)
}
