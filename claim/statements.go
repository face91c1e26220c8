package claim

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
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

	claimSettings, settleSettings string
	claim, claimKeys, extend      string
	done, doneDelete              string
	retry, dead, release          string
	pairs, kinds, register        string
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
	at, err := parseTable(table)
	if err != nil {
		return statements{}, err
	}
	put := strings.NewReplacer(
		":jobs", at.quoted(at.table),
		":relay_kinds", at.quoted("relay_kinds"),
		":relay_closed_keys", at.quoted("relay_closed_keys"),
		":relay_owns", at.quoted("relay_owns"),
		":relay_replays", at.quoted("relay_replays"),
		":relay_notify", at.quoted("relay_notify"),
	)
	s := statements{table: at.quoted(at.table)}
	for name, to := range map[string]*string{
		"closed_keys": &s.closedKeys, "closed_kinds": &s.closedKinds, "closed_count": &s.closedCount, "reopen": &s.reopen,
		"claim_settings": &s.claimSettings, "settle_settings": &s.settleSettings, "claim": &s.claim, "claim_keys": &s.claimKeys, "extend": &s.extend,
		"done": &s.done, "done_delete": &s.doneDelete, "retry": &s.retry, "dead": &s.dead, "release": &s.release,
		"pairs": &s.pairs, "kinds": &s.kinds, "register": &s.register, "sweep": &s.sweep, "reap": &s.reap,
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

// tableName is a table as the settings name it; schema is "" when the search_path decides.
type tableName struct{ schema, table string }

// parseTable reads "table" or "schema.table". Names are taken as they are, without folding to lower case; one that
// holds a dot is written in double quotes, as in SQL.
func parseTable(s string) (tableName, error) {
	var parts []string
	for rest, more := s, true; more; {
		part, after, err := cutName(rest)
		if err != nil || part == "" {
			return tableName{}, fmt.Errorf("table %q: want table or schema.table", s)
		}
		parts = append(parts, part)
		rest, more = strings.CutPrefix(after, ".")
		if !more && rest != "" {
			return tableName{}, fmt.Errorf("table %q: text after a closing quote", s)
		}
	}
	switch len(parts) {
	case 1:
		return tableName{table: parts[0]}, nil
	case 2:
		return tableName{schema: parts[0], table: parts[1]}, nil
	}
	return tableName{}, fmt.Errorf("table %q: %d names, want table or schema.table", s, len(parts))
}

// cutName takes one name off the front of s.
func cutName(s string) (name, after string, err error) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexByte(s, '.')
		if i < 0 {
			i = len(s)
		}
		return s[:i], s[i:], nil
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return strings.ReplaceAll(s[1:i], `""`, `"`), s[i+1:], nil
	}
	return "", "", fmt.Errorf("a quote that doesn't end")
}

// quoted names something that lives in the table's schema.
func (t tableName) quoted(name string) string {
	if t.schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{t.schema, name}.Sanitize()
}
