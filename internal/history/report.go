package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rule is a promise that a finding breaks.
type Rule string

// The rules, one for each way in which a run can be wrong.
const (
	Lost        Rule = "lost"        // committed, and neither delivered nor visibly dead
	Invented    Rule = "invented"    // delivered or stored, and never committed
	Altered     Rule = "altered"     // another key or content than was stored
	Unexplained Rule = "unexplained" // a duplicate without a fault that could be its cause
	Disorder    Rule = "disorder"    // the first arrivals of a key, out of order
	Unaccepted  Rule = "unaccepted"  // noted as accepted, and not at the broker
	Incomplete  Rule = "incomplete"  // done, and not at all destinations
	Foreign     Rule = "foreign"     // served by the side that doesn't own it
	Replayed    Rule = "replayed"    // a job not replayed once
	Untrue      Rule = "untrue"      // attempts or last_error tell another story than what happened
	Stale       Rule = "stale"       // changed by one who didn't hold it
	Leaked      Rule = "leaked"      // a payload or a secret in a log, metric or error
)

// Finding is one broken promise.
type Finding struct {
	Rule Rule
	Job  int64 // 0 when it concerns none
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s: job %d: %s", f.Rule, f.Job, f.Text) }

// Report is what became of a run.
type Report struct {
	Findings   []Finding
	Committed  int // jobs, without copies
	RolledBack int // jobs
	Unsure     int // jobs whose producer was cut off at COMMIT; those found are among the committed
	Messages   int
	OldWork    int            // jobs that old workers carried out
	Dead       int            // visibly, with a true reason
	Duplicates map[string]int // by the fault that explains them
	Faults     map[string]int // by name
	Moves      int            // changes of status, all of which were checked
	Lapsed     int            // claims that ended by the end of their lease
}

// add notes a finding.
func (r *Report) add(rule Rule, job int64, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{rule, job, fmt.Sprintf(format, args...)})
}

// Count is how many findings break a rule.
func (r *Report) Count(rule Rule) (n int) {
	for _, f := range r.Findings {
		if f.Rule == rule {
			n++
		}
	}
	return n
}

// Summary is the report's figures in a line each.
func (r *Report) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %d, rolled back %d, cut off at COMMIT %d, dead %d\n", r.Committed, r.RolledBack, r.Unsure, r.Dead)
	fmt.Fprintf(&b, "messages %d, by old workers %d, changes of status %d, lapsed claims %d\n", r.Messages, r.OldWork, r.Moves, r.Lapsed)
	fmt.Fprintf(&b, "lost %d, done without acceptance %d, invented %d, stale writes %d, unexplained duplicates %d, out of order %d, findings in all %d\n",
		r.Count(Lost), r.Count(Unaccepted)+r.Count(Incomplete), r.Count(Invented), r.Count(Stale), r.Count(Unexplained), r.Count(Disorder), len(r.Findings))
	fmt.Fprintf(&b, "duplicates %d: %s\n", total(r.Duplicates), list(r.Duplicates))
	fmt.Fprintf(&b, "faults %d: %s", total(r.Faults), list(r.Faults))
	return b.String()
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// list writes counts, the largest first.
func list(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
