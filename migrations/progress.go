package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// build runs one CREATE INDEX and says now and then how far it is: on a large table it is silent for minutes, and it may
// wait for somebody's open transaction, which only an operator can end.
func (m *migrator) build(ctx context.Context, conn *sql.Conn, index, text string) error {
	var pid int64
	if err := conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return fmt.Errorf("build index %s: %w", index, err)
	}
	m.log.Info("building index", "index", index)
	var wg sync.WaitGroup
	watched, stop := context.WithCancel(ctx)
	wg.Go(func() { m.watch(watched, pid, index) })
	_, err := conn.ExecContext(ctx, text)
	stop()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("build index %s: %w", index, err)
	}
	return nil
}

func (m *migrator) watch(ctx context.Context, pid int64, index string) {
	for sleep(ctx, progressEvery) == nil {
		var phase string
		var percent, waitsFor int64
		if err := m.db.QueryRowContext(ctx, query("progress"), pid).Scan(&phase, &percent, &waitsFor); err != nil {
			continue // between two phases, or over
		}
		m.log.Info("building index", "index", index, "phase", phase, "percent", percent, "waits_for_pid", waitsFor)
	}
}
