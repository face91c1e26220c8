package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/stage"
)

// replay sends the past once more, by the same command until it has ended well: the first is killed on its way, others may
// end because the database is away.
func (w *world) replay() {
	env := []string{"RELAY_DATABASE_URL=" + w.db.URL, "RELAY_TABLE=" + w.db.Table, "RELAY_LOG_FORMAT=text"}
	limit := time.Now().Add(span() + drainBound)
	for i := 0; time.Now().Before(limit) && w.t.Context().Err() == nil; i++ {
		log := filepath.Join(w.t.TempDir(), fmt.Sprintf("replay-%d.log", i))
		p := stage.Start(w.t, log, binary, env, "replay", "--kind", "past", "--since", "24h", "--rate", "150")
		if i == 0 {
			w.killReplay(p)
		}
		<-p.Ended
		w.keep("the log of replay", p.Output())
		if p.Cmd.ProcessState.Success() {
			return
		}
		w.hold(200 * time.Millisecond) // as whoever types it again
	}
	w.t.Errorf("seed %d: the replay never ended well", w.seed)
}

// killReplay waits until there are some copies.
func (w *world) killReplay(p *stage.Process) {
	for p.Alive() {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		var n int
		_ = w.db.Pool.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL`).Scan(&n)
		cancel()
		if n > pastJobs/5 {
			_ = p.Cmd.Process.Signal(syscall.SIGKILL)
			return
		}
		select {
		case <-p.Ended:
		case <-time.After(20 * time.Millisecond):
		}
	}
}
