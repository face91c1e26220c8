package history

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// judge is a history, sorted for looking things up.
type judge struct {
	History
	Report
	rows      map[int64]*Row
	committed map[int64]bool
	refused   map[int64]bool                  // rolled back
	arrivals  map[int64]map[string][]*Arrival // by job (a copy is its own) and destination
	changes   map[int64][]*Change
	work      map[int64]int
	copies    map[int64][]*Row // by the job that they are of
}

// Check holds a history against what relay promises.
func Check(h History) Report {
	j := &judge{
		History: h, rows: map[int64]*Row{}, committed: map[int64]bool{}, refused: map[int64]bool{},
		arrivals: map[int64]map[string][]*Arrival{}, changes: map[int64][]*Change{}, work: map[int64]int{}, copies: map[int64][]*Row{},
	}
	j.Duplicates, j.Report.Faults = map[string]int{}, map[string]int{}
	j.sort()
	j.checkStored()
	for i := range j.Rows {
		row := &j.Rows[i]
		if j.Routes[row.Kind].To == nil {
			continue
		}
		claims := j.checkChanges(row)
		j.checkEnd(row)
		j.checkSides(row)
		j.checkWork(row, claims)
		for _, to := range j.Routes[row.Kind].To {
			j.checkCopies(row, to, claims)
		}
	}
	j.checkOrder()
	j.checkReplays()
	j.checkTexts()
	return j.Report
}

func (j *judge) sort() {
	for i := range j.Rows {
		row := &j.Rows[i]
		j.rows[row.ID] = row
		if row.ReplayOf != 0 {
			j.copies[row.ReplayOf] = append(j.copies[row.ReplayOf], row)
		}
	}
	for _, tx := range j.Transactions {
		j.note(tx)
	}
	j.reissued()
	for i := range j.Changes {
		c := &j.Changes[i]
		j.changes[c.Job] = append(j.changes[c.Job], c)
	}
	for i := range j.Arrivals {
		j.arrive(&j.Arrivals[i])
	}
	for _, w := range j.Work {
		j.work[w.Job]++
	}
	for _, f := range j.History.Faults {
		j.Report.Faults[f.Name]++
	}
	j.Messages, j.OldWork, j.Moves = len(j.Arrivals), len(j.Work), len(j.Changes)
}

// note files the jobs of a transaction by what became of them.
func (j *judge) note(tx Transaction) {
	for _, id := range tx.IDs {
		there := tx.Fate == Committed
		if tx.Fate == Unknown {
			j.Unsure++
			there = slices.Contains(tx.Found, id)
		}
		if !there {
			j.refused[id] = true
			j.RolledBack++
			continue
		}
		j.committed[id] = true
		j.Committed++
		if row := j.rows[id]; row == nil || row.Kind != tx.Kind {
			j.add(Lost, id, "committed as %s, and not in the table as such", tx.Kind)
		}
	}
}

// reissued takes ids out of those that were rolled back which a database gave to others after it had crashed: that an id was
// taken is only on disk with a commit that came later.
func (j *judge) reissued() {
	if slices.ContainsFunc(j.History.Faults, func(f Fault) bool { return f.Forgets }) {
		maps.DeleteFunc(j.refused, func(id int64, _ bool) bool { return j.committed[id] })
	}
}

// arrive files a message under its job, or under the copy whose it is.
func (j *judge) arrive(a *Arrival) {
	id, err := strconv.ParseInt(strings.TrimPrefix(a.ID, j.Source+"/"), 10, 64)
	if err != nil || !strings.HasPrefix(a.ID, j.Source+"/") {
		j.add(Invented, 0, "%s: the message id %q is none of the run's", a.To, a.ID)
		return
	}
	job := id
	if a.Replay != 0 {
		job = a.Replay
	}
	row := j.rows[job]
	switch {
	case j.refused[id]:
		j.add(Invented, id, "%s: rolled back, and delivered", a.To)
		return
	case !j.committed[id]:
		j.add(Invented, id, "%s: never committed, and delivered", a.To)
		return
	case row == nil:
		return // lost, as noted, or a copy that the next case can't compare
	case a.Replay != 0 && row.ReplayOf != id:
		j.add(Invented, id, "%s: says that it is copy %d, which isn't one of it", a.To, a.Replay)
		return
	case a.Replay == 0 && row.ReplayOf != 0:
		j.add(Invented, id, "%s: a copy under an id of its own", a.To)
		return
	}
	if a.Key != row.Key || a.Payload != row.Payload {
		j.add(Altered, job, "%s: got key %q and %.100q, the table has %q and %.100q", a.To, a.Key, a.Payload, row.Key, row.Payload)
	}
	if !slices.Contains(j.Routes[row.Kind].To, a.To) {
		j.add(Invented, job, "%s: its kind %s doesn't go there", a.To, row.Kind)
	}
	if j.arrivals[job] == nil {
		j.arrivals[job] = map[string][]*Arrival{}
	}
	j.arrivals[job][a.To] = append(j.arrivals[job][a.To], a)
}

// checkStored: every row was committed or is a copy.
func (j *judge) checkStored() {
	for _, row := range j.Rows {
		if row.ReplayOf == 0 && !j.committed[row.ID] {
			j.add(Invented, row.ID, "in the table, and never committed")
		}
	}
}

// checkEnd: a job is done and where it should be, or dead with a true reason.
func (j *judge) checkEnd(row *Row) {
	route := j.Routes[row.Kind]
	switch {
	case row.Status == "dead":
		j.checkDead(row, route)
	case row.Status != "done":
		j.add(Lost, row.ID, "%s at the end, after %d attempts; last error %q", row.Status, row.Attempts, row.LastError)
	case route.Poison:
		j.add(Unaccepted, row.ID, "done, though no broker can take it")
	case row.LastError != "":
		j.add(Untrue, row.ID, "done with the error %q", row.LastError)
	case route.Shared && !row.Token:
		if j.work[row.ID] == 0 {
			j.add(Lost, row.ID, "done by old workers, none of which carried it out")
		}
	default:
		j.checkArrived(row, route)
	}
}

func (j *judge) checkArrived(row *Row, route Route) {
	var missing []string
	for _, to := range route.To {
		if len(j.arrivals[row.ID][to]) == 0 {
			missing = append(missing, to)
		}
	}
	if len(missing) == len(route.To) {
		j.add(Unaccepted, row.ID, "done, and at none of its destinations; %s", j.life(row.ID))
	} else if len(missing) > 0 {
		j.add(Incomplete, row.ID, "done, and not at %s; %s", strings.Join(missing, ", "), j.life(row.ID))
	}
}

// checkDead: a poisoned job dies at its first attempt, any other of its last one, and both say why.
func (j *judge) checkDead(row *Row, route Route) {
	switch {
	case row.LastError == "" || row.LastError == "no reason recorded":
		j.add(Untrue, row.ID, "dead without a reason")
	case route.Poison && len(j.arrivals[row.ID]) > 0:
		j.add(Invented, row.ID, "no broker can take it, and it was delivered")
	case !route.Poison && row.Attempts < row.MaxAttempts:
		j.add(Lost, row.ID, "dead after %d of %d attempts: %s", row.Attempts, row.MaxAttempts, row.LastError)
	default:
		j.Dead++
	}
}
