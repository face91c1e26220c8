package history_test

import (
	"slices"
	"testing"

	"github.com/jobrelay/relay/internal/history"
)

// A run that went well has no findings, and is counted right.
func TestGoodHistory(t *testing.T) {
	t.Parallel()
	r := history.Check(newStory().History)
	for _, f := range r.Findings {
		t.Error(f)
	}
	if r.Committed != 9 || r.RolledBack != 2 || r.Unsure != 2 || r.Dead != 1 || r.Messages != 9 || r.OldWork != 1 || len(r.Duplicates) != 0 {
		t.Errorf("counts: %+v", r)
	}
}

// Every kind of wrong history is found, under its name and no other.
func TestBrokenHistories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rule history.Rule
		tear func(*story)
	}{
		{"a job that never arrived is still ready", history.Lost, func(s *story) { s.fresh("plain") }},
		{"a committed row is gone", history.Lost, func(s *story) {
			s.Transactions = append(s.Transactions, history.Transaction{Kind: "plain", IDs: []int64{30}})
		}},
		{"a job died before its attempts were used up", history.Lost, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.end(id, one, 2, "dead", kafka+": refused")
		}},
		{"done by old workers that never did it", history.Lost, func(s *story) { s.Work = nil }},
		{"a rolled back job arrived", history.Invented, func(s *story) {
			s.Arrivals = append(s.Arrivals, history.Arrival{To: kafka, ID: "s/10", Attempt: 1})
		}},
		{"a job that was cut off and isn't there arrived", history.Invented, func(s *story) {
			s.Arrivals = append(s.Arrivals, history.Arrival{To: kafka, ID: "s/12", Attempt: 1})
		}},
		{"a message of nobody", history.Invented, func(s *story) {
			s.Arrivals = append(s.Arrivals, history.Arrival{To: kafka, ID: "other/1", Attempt: 1})
		}},
		{"a rolled back row is in the table", history.Invented, func(s *story) {
			s.row("plain", 10)
			s.serve(10, one, 1)
			s.job(10).Kind = "nobody's"
		}},
		{"at a destination of another kind", history.Invented, func(s *story) { s.arrive(1, rabbit) }},
		{"a poisoned job arrived", history.Invented, func(s *story) {
			s.arrive(9, rabbit)
			s.fault("stop", "rabbitmq", "", 0, 5)
		}},
		{"another payload", history.Altered, func(s *story) { s.Arrivals[0].Payload = "p0" }},
		{"another key", history.Altered, func(s *story) { s.Arrivals[0].Key = "" }},
		{"a key out of order", history.Disorder, func(s *story) { s.Arrivals[1], s.Arrivals[2] = s.Arrivals[2], s.Arrivals[1] }},
		{"done and nowhere", history.Unaccepted, func(s *story) {
			s.without(11, kafka)
			s.job(11).Delivered = nil
			for i, c := range s.Changes {
				if c.Job == 11 {
					s.Changes[i].Accepted = nil
				}
			}
		}},
		{"accepted by an attempt that isn't there, after one that is", history.Unaccepted, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.arrive(id, kafka)
			s.lapse(id, two, 9)
			s.fault("kill", history.OnRelay, one, 2, 2)
			s.claim(id, two, 10)
			s.end(id, two, 11, "done", "", kafka)
		}},
		{"a poisoned job is done", history.Unaccepted, func(s *story) {
			id := s.fresh("poison")
			s.claim(id, one, 1)
			s.end(id, one, 2, "done", "")
		}},
		{"a copy that never arrived", history.Unaccepted, func(s *story) { s.without(8, kafka) }},
		{"fan-out that lacks one", history.Incomplete, func(s *story) {
			s.without(4, rabbit)
			for i, c := range s.Changes {
				if c.Job == 4 && c.To == "done" {
					s.Changes[i].Accepted = []string{kafka}
				}
			}
		}},
		{"claimed by old workers, owned by relays", history.Foreign, func(s *story) {
			s.job(6).Key = s.job(5).Key
		}},
		{"claimed by relays, owned by old workers", history.Foreign, func(s *story) {
			id := s.fresh("shared")
			s.job(id).Key = s.job(6).Key
			s.serve(id, one, 1, kafka)
		}},
		{"not replayed", history.Replayed, func(s *story) { s.serve(s.fresh("past"), one, 1, kafka) }},
		{"replayed twice", history.Replayed, func(s *story) {
			s.Rows = append(s.Rows, history.Row{ID: 20, Kind: "past", Status: "ready", ReplayOf: 7, Key: "k", Payload: "p7"})
			s.serve(20, one, 7, kafka)
		}},
		{"a copy of a kind that nobody replayed", history.Replayed, func(s *story) {
			s.Rows = append(s.Rows, history.Row{ID: 20, Kind: "plain", Status: "ready", ReplayOf: 1, Key: "k", Payload: "p1"})
			s.serve(20, one, 7, kafka)
		}},
		{"attempts that don't count the claims", history.Untrue, func(s *story) { s.job(1).Attempts = 2 }},
		{"a claim without an attempt", history.Untrue, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.job(id).Attempts = 0
			s.Changes[len(s.Changes)-1].Attempts = 0
			s.arrive(id, kafka)
			s.end(id, one, 2, "done", "", kafka)
		}},
		{"done with an error", history.Untrue, func(s *story) { s.job(1).LastError = kafka + ": refused" }},
		{"dead without a reason", history.Untrue, func(s *story) { s.job(9).LastError = "" }},
		{"a retry that names no destination", history.Untrue, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.end(id, one, 2, "ready", "something went wrong")
			s.serve(id, one, 3, kafka)
		}},
		{"settled by one who no longer held it", history.Stale, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.fault("pause", history.OnRelay, one, 1, 9)
			s.lapse(id, two, 8)
			s.claim(id, two, 9)
			s.arrive(id, kafka)
			s.end(id, one, 10, "done", "", kafka)
		}},
		{"a lease ended before its time", history.Stale, func(s *story) {
			id := s.fresh("plain")
			s.claim(id, one, 1)
			s.lapse(id, two, 2)
			s.Changes[len(s.Changes)-1].Expired = false
			s.serve(id, two, 3, kafka)
		}},
		{"a payload in a log", history.Leaked, func(s *story) { s.Texts[0].Text = "sent {CANARY}" }},
		{"a secret in an error", history.Leaked, func(s *story) { s.job(9).LastError = "rabbitmq:x/a: amqp://guest:SECRET@…" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.tear(s)
			got := history.Check(s.History).Findings
			if len(got) == 0 {
				t.Fatalf("no finding, want %s", c.rule)
			}
			if i := slices.IndexFunc(got, func(f history.Finding) bool { return f.Rule != c.rule }); i >= 0 {
				t.Errorf("got %s, want findings of %s only", got[i], c.rule)
			}
		})
	}
}

// A database that has crashed may give the ids of what was rolled back to others; one that hasn't may not.
func TestIDsAreGivenAgain(t *testing.T) {
	t.Parallel()
	for _, crashed := range []bool{true, false} {
		s := newStory()
		s.Transactions = append(s.Transactions, history.Transaction{Fate: history.RolledBack, Kind: "all", IDs: []int64{1}})
		if crashed {
			s.Faults = append(s.Faults, history.Fault{Name: "crash", On: history.OnDatabase, From: at(0), To: at(1), Forgets: true})
		}
		if r := history.Check(s.History); (len(r.Findings) == 0) != crashed || !crashed && r.Count(history.Invented) == 0 {
			t.Errorf("crashed %v: findings %v", crashed, r.Findings)
		}
	}
}
