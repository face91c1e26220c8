package claim

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jobrelay/relay/internal/sqlname"
)

// The files write the table and what lives beside it as psql variables, so each can be run by hand:
//
//	psql -v jobs=jobs -v relay_kinds=relay_kinds -v relay_closed_keys=relay_closed_keys -v relay_owns=relay_owns \
//	     -v relay_replays=relay_replays -v relay_notify=relay_notify
//
//go:embed *.sql
var files embed.FS

// statements are the files' texts for one table.
type statements struct {
	table string // quoted

	closedKeys, closedKinds string
	closedCount, reopen     string
	closedSweep             string

	claimSettings, settleSettings string
	claim, claimNext, claimKeys   string
	extend                        string
	done, doneDelete              string
	retry, dead, release          string
	pairs, pairsNewest            string
	kinds, register               string
	sweep, reap                   string
	cleanKinds, clean             string
	figures, figuresDead          string
	deadTuples, snapshot          string
	deadKinds, deadPage           string
	deadByID, deadGet             string
	requeue, discard, exists      string
	replay                        replayStatements
	kindRows                      string
	kindFinished, kindReady       string
	shareLock, shareSet           string
	shareClaims                   string
}

// replayStatements are those of a replay.
type replayStatements struct {
	state, begin, finish  string
	finished, slice, byID string
	copy, wake, delivered string
	left, waiting         string
}

func statementsFor(table string) (statements, error) {
	at, err := sqlname.Parse(table)
	if err != nil {
		return statements{}, err
	}
	put := strings.NewReplacer(
		":jobs", at.Quoted(),
		":relay_kinds", at.Beside("relay_kinds"),
		":relay_closed_keys", at.Beside("relay_closed_keys"),
		":relay_owns", at.Beside("relay_owns"),
		":relay_replays", at.Beside("relay_replays"),
		":relay_notify", at.Beside("relay_notify"),
	)
	s := statements{table: at.Quoted()}
	for name, to := range map[string]*string{
		"closed_keys": &s.closedKeys, "closed_kinds": &s.closedKinds, "closed_count": &s.closedCount, "reopen": &s.reopen, "closed_sweep": &s.closedSweep,
		"claim_settings": &s.claimSettings, "settle_settings": &s.settleSettings, "claim": &s.claim, "claim_next": &s.claimNext, "claim_keys": &s.claimKeys, "extend": &s.extend,
		"done": &s.done, "done_delete": &s.doneDelete, "retry": &s.retry, "dead": &s.dead, "release": &s.release,
		"pairs": &s.pairs, "pairs_newest": &s.pairsNewest, "kinds": &s.kinds, "register": &s.register, "sweep": &s.sweep, "reap": &s.reap,
		"clean_kinds": &s.cleanKinds, "clean": &s.clean, "figures": &s.figures, "figures_dead": &s.figuresDead,
		"dead_tuples": &s.deadTuples, "snapshot": &s.snapshot, "dead_kinds": &s.deadKinds, "dead_page": &s.deadPage,
		"dead_by_id": &s.deadByID, "dead_get": &s.deadGet, "requeue": &s.requeue, "discard": &s.discard,
		"exists": &s.exists, "kind_rows": &s.kindRows, "kind_finished": &s.kindFinished, "kind_ready": &s.kindReady,
		"replay_state": &s.replay.state, "replay_begin": &s.replay.begin, "replay_finish": &s.replay.finish,
		"replay_finished": &s.replay.finished, "replay_slice": &s.replay.slice, "replay_by_id": &s.replay.byID,
		"replay_copy": &s.replay.copy, "replay_wake": &s.replay.wake, "replay_delivered": &s.replay.delivered,
		"replay_left": &s.replay.left, "replay_waiting": &s.replay.waiting,
		"share_lock": &s.shareLock, "share_set": &s.shareSet, "share_claims": &s.shareClaims,
	} {
		text, err := files.ReadFile(name + ".sql")
		if err != nil {
			return statements{}, fmt.Errorf("statement %s: %w", name, err)
		}
		*to = put.Replace(withoutComments(string(text)))
	}
	return s, nil
}

// withoutComments drops whole-line comments: some exec modes send the text with every execution.
func withoutComments(sql string) string {
	var out strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			out.WriteString(line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(out.String()), ";")
}
