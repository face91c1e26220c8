package history

import (
	"maps"
	"slices"
	"strings"
)

// checkCopies holds the messages of a job at one destination against its claims. Each message names its attempt, and so
// the claim that sent it. The claim that noted the acceptance has its message there. Every other message needs a reason why the
// claim that sent it didn't note it, and counts as a duplicate when it isn't the only one.
func (j *judge) checkCopies(row *Row, to string, spells []*spell) {
	byAttempt := map[int][]*spell{}
	for _, s := range spells {
		if s.By != Old {
			byAttempt[s.Attempts] = append(byAttempt[s.Attempts], s)
		}
	}
	count := map[int]int{}
	for _, a := range j.arrivals[row.ID][to] {
		count[a.Attempt]++
	}
	sent := maps.Clone(byAttempt)
	kept := false // whether one message needs no reason
	for attempt, tried := range byAttempt {
		if i := slices.IndexFunc(tried, func(s *spell) bool { return s.accepted(to) }); i >= 0 {
			kept = j.takeAccepted(row, to, attempt, count) || kept
			byAttempt[attempt] = slices.Delete(slices.Clone(tried), i, i+1)
		}
	}
	for _, attempt := range slices.Sorted(maps.Keys(count)) {
		again := j.resent(sent[attempt], to)
		j.explain(row, to, attempt, count[attempt], byAttempt[attempt], again, &kept)
	}
}

// checkWork: what old workers carried out more than once, they could not note because the database was away.
func (j *judge) checkWork(row *Row, spells []*spell) {
	for range j.work[row.ID] - 1 {
		why := ""
		for i, s := range spells {
			if s.By == Old && !(len(s.ends) > 0 && s.ends[0].how() == settled) {
				if why = j.reason(s, ""); why != "" {
					spells = slices.Delete(slices.Clone(spells), i, i+1)
					break
				}
			}
		}
		if why == "" {
			why = j.forgotten(row, 1)
		}
		if why == "" {
			j.add(Unexplained, row.ID, "old workers carried it out once more, and no fault explains why; %s", j.life(row.ID))
		} else {
			j.Duplicates[why]++
		}
	}
}

// takeAccepted takes the message of an accepted attempt away. Where the broker knows messages again it may have kept an
// earlier attempt's instead.
func (j *judge) takeAccepted(row *Row, to string, attempt int, count map[int]int) bool {
	if count[attempt] > 0 {
		count[attempt]--
		return true
	}
	if !j.Routes[row.Kind].Known[to] {
		j.add(Unaccepted, row.ID, "%s: attempt %d was noted as accepted, and isn't there", to, attempt)
	}
	return false
}

// explain finds a reason for n messages of one attempt that no claim noted. The first of a job that has none that was
// noted is no duplicate, but needs its reason as well.
func (j *judge) explain(row *Row, to string, attempt, n int, tried []*spell, again []string, kept *bool) {
	for range n {
		why := ""
		for i, s := range tried {
			if why = j.reason(s, to); why != "" {
				tried = slices.Delete(slices.Clone(tried), i, i+1)
				break
			}
		}
		if why == "" {
			why = j.forgotten(row, attempt)
		}
		if why == "" && len(again) > 0 {
			why, again = again[0], again[1:]
		}
		switch {
		case why == "":
			j.add(Unexplained, row.ID, "%s: attempt %d arrived, was not noted as accepted, and no fault explains why; %s", to, attempt, j.life(row.ID))
		case *kept:
			j.Duplicates[why]++
		default:
			*kept = true
		}
	}
}

// reason is the fault because of which a claim that sent the job to a destination could not note it: of several the one
// that is closest to it.
func (j *judge) reason(s *spell, to string) (name string) {
	broker, _, _ := strings.Cut(to, ":")
	how := lapsed // it never ended
	if len(s.ends) > 0 {
		how = s.ends[0].how()
	}
	causes := map[string][]string{lapsed: {OnRelay, OnDatabase}, retried: {broker, OnRelay, OnDatabase}}[how]
	closest := len(causes)
	for _, f := range j.History.Faults {
		if f.Harmless || f.Relay != "" && f.Relay != s.By || !j.during(&f, s) {
			continue
		}
		if i := slices.Index(causes, f.On); i >= 0 && i < closest {
			closest, name = i, f.Name
		}
	}
	return name
}

// resent are the faults because of which claims can have sent the job to a destination once more each, whether one of
// them was noted or not.
func (j *judge) resent(claims []*spell, to string) (names []string) {
	broker, _, _ := strings.Cut(to, ":")
	for _, s := range claims {
		for _, f := range j.History.Faults {
			if f.Resent && f.On == broker && j.during(&f, s) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// during says whether a fault struck while a claim held its job, or a little earlier.
func (j *judge) during(f *Fault, s *spell) bool {
	return !f.To.Add(j.Slack).Before(s.At) && (len(s.ends) == 0 || !f.From.After(s.ends[0].At))
}

// forgotten: the claim that sent it was forgotten by a database that crashed, and the attempt was given out again. Jobs may
// still have come between the order to crash and the crash.
func (j *judge) forgotten(row *Row, attempt int) string {
	for _, f := range j.History.Faults {
		if !f.Forgets || f.From.Before(row.Created) && f.Struck.Before(row.Created) {
			continue
		}
		for _, c := range j.changes[row.ID] {
			if c.To == "running" && c.Attempts >= attempt && c.At.After(f.From) {
				return f.Name
			}
		}
	}
	return ""
}
