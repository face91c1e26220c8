package chaos

import (
	"context"
	_ "embed"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

//go:embed ledger.sql
var ledger string

func (w *world) setUpDatabase() {
	w.t.Helper()
	w.db = testdb.On(w.t, w.database.URL)
	w.db.Migrate(w.t, migrations.Options{})
}

// keepLedger has every change from now on noted.
func (w *world) keepLedger() {
	w.t.Helper()
	w.db.Exec(w.t, ledger)
	w.noted = true
}

// history is what everybody has written down, once the run is over.
func (w *world) history() history.History {
	w.t.Helper()
	w.lookUp()
	rs := make(map[string]history.Route, len(kinds))
	for kind, r := range kinds {
		rs[kind] = r
	}
	return history.History{
		Source: w.db.Schema, Routes: rs, Transactions: w.transactions, Arrivals: w.consume(), Work: w.work, Rows: w.rows(), Changes: w.changes(),
		Faults: append(w.faults, w.late...), Texts: w.texts, Canaries: w.canaries, Slack: publishTimeout + lease/3,
	}
}

// lookUp finds out what became of the transactions whose producers don't know.
func (w *world) lookUp() {
	w.t.Helper()
	for i, tx := range w.transactions {
		if tx.Fate == history.Unknown {
			w.transactions[i].Found = testdb.Column[int64](w.t, w.db, `SELECT id FROM jobs WHERE id = ANY ($1) AND kind = $2`, tx.IDs, tx.Kind)
		}
	}
}

func (w *world) rows() (out []history.Row) {
	w.t.Helper()
	rows, err := w.db.Pool.Query(w.t.Context(), `SELECT id, kind, coalesce(key, ''), coalesce(convert_to(payload::text, 'UTF8'), body), status, attempts, max_attempts,
		coalesce(last_error, ''), lease_token IS NOT NULL, coalesce(delivered, '{}'), coalesce(replay_of, 0), created_at FROM jobs ORDER BY id`)
	if err != nil {
		w.t.Fatal(err)
	}
	var r history.Row
	var payload []byte
	if _, err := pgx.ForEachRow(rows, []any{&r.ID, &r.Kind, &r.Key, &payload, &r.Status, &r.Attempts, &r.MaxAttempts, &r.LastError, &r.Token, &r.Delivered, &r.ReplayOf, &r.Created},
		func() error {
			r.Payload = string(payload)
			out = append(out, r)
			r.Delivered = nil
			return nil
		}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) changes() (out []history.Change) {
	w.t.Helper()
	rows, err := w.db.Pool.Query(w.t.Context(), `SELECT job, by, at, "from", "to", coalesce(token_from, 0), coalesce(token_to, 0), attempts_from, attempts, expired,
		delivered_from, delivered, coalesce(error, '') FROM ledger ORDER BY n`)
	if err != nil {
		w.t.Fatal(err)
	}
	var c history.Change
	var before []string
	if _, err := pgx.ForEachRow(rows, []any{&c.Job, &c.By, &c.At, &c.From, &c.To, &c.TokenFrom, &c.TokenTo, &c.AttemptsFrom, &c.Attempts, &c.Expired, &before, &c.Delivered, &c.Error},
		func() error {
			c.Accepted = nil
			for _, to := range c.Delivered {
				if !slices.Contains(before, to) {
					c.Accepted = append(c.Accepted, to)
				}
			}
			out = append(out, c)
			c.Delivered, before = nil, nil
			return nil
		}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// terminate ends the sessions of those whose name begins so.
func (w *world) terminate(names string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	_, _ = w.db.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1 || '%' AND pid <> pg_backend_pid()`, names)
}
