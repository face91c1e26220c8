package history_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobrelay/relay/internal/history"
)

// Destinations and processes of the stories.
const (
	kafka, rabbit, fifo = "kafka:t", "rabbitmq:x/a", "sqs:q.fifo"
	one, two            = "relay-1.1", "relay-2.1"
)

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(second int) time.Time { return dawn.Add(time.Duration(second) * time.Second) }

// story is a history in the making.
type story struct{ history.History }

// newStory has a job of each kind that arrived as it should: 1 plain, 2 and 3 ordered, 4 fanned out, 5 and 6 shared, 7
// replayed as 8, 9 poisoned, 10 rolled back, 11 and 12 cut off at COMMIT, of which only 11 is there.
func newStory() *story {
	s := &story{history.History{
		Source: "s", Slack: time.Second, Canaries: map[string]string{"a payload": "CANARY", "a password": "SECRET"},
		Routes: map[string]history.Route{
			"plain": {To: []string{kafka}}, "ordered": {To: []string{kafka}, Ordered: true}, "all": {To: []string{kafka, rabbit}},
			"shared": {To: []string{kafka}, Shared: true, Share: 50}, "past": {To: []string{kafka}, Replayed: true},
			"poison": {To: []string{rabbit}, Poison: true}, "queue": {To: []string{fifo}, Known: map[string]bool{fifo: true}},
		},
		Texts: []history.Text{{Name: "log", Text: "all is well"}},
	}}
	s.commit("plain", 1)
	s.commit("ordered", 2, 3)
	s.commit("all", 4)
	s.commit("shared", 5, 6)
	s.commit("past", 7)
	s.commit("poison", 9)
	s.Transactions = append(s.Transactions, history.Transaction{Fate: history.RolledBack, Kind: "plain", IDs: []int64{10}},
		history.Transaction{Fate: history.Unknown, Kind: "plain", IDs: []int64{11, 12}, Found: []int64{11}})
	s.row("plain", 11)
	for _, id := range []int64{1, 2, 3, 7, 11} {
		s.serve(id, one, 1, kafka)
	}
	s.serve(4, one, 1, kafka, rabbit)
	s.share()
	s.Rows = append(s.Rows, history.Row{ID: 8, Kind: "past", Status: "ready", MaxAttempts: 5, ReplayOf: 7, Created: at(5), Payload: "p7", Key: "k"})
	s.serve(8, two, 6, kafka)
	s.claim(9, one, 1)
	s.end(9, one, 2, "dead", "rabbitmq:x/a: header h is null")
	return s
}

// share lets each side serve one of the jobs 5 and 6, by a key that it owns.
func (s *story) share() {
	for i := 0; s.job(5).Key == "" || s.job(6).Key == ""; i++ {
		key := fmt.Sprint("key-", i)
		if history.Owned(key, 0, 50) {
			s.job(5).Key = key
		} else {
			s.job(6).Key = key
		}
	}
	s.serve(5, one, 1, kafka)
	s.workOn(6, 1)
}

func (s *story) workOn(id int64, second int) {
	s.claim(id, history.Old, second)
	s.Work = append(s.Work, history.Work{Job: id, At: at(second)})
	s.end(id, history.Old, second+1, "done", "")
}

func (s *story) commit(kind string, ids ...int64) {
	s.Transactions = append(s.Transactions, history.Transaction{Kind: kind, IDs: ids})
	for _, id := range ids {
		s.row(kind, id)
	}
}

func (s *story) row(kind string, id int64) {
	r := history.Row{ID: id, Kind: kind, Status: "ready", MaxAttempts: 5, Created: at(0), Payload: fmt.Sprint("p", id)}
	if kind != "shared" {
		r.Key = "k"
	}
	s.Rows = append(s.Rows, r)
}

func (s *story) job(id int64) *history.Row {
	return &s.Rows[slices.IndexFunc(s.Rows, func(r history.Row) bool { return r.ID == id })]
}

// claim makes a job running.
func (s *story) claim(id int64, by string, second int) {
	row := s.job(id)
	c := history.Change{Job: id, By: by, At: at(second), From: row.Status, To: "running", AttemptsFrom: row.Attempts, Attempts: row.Attempts + 1, Delivered: row.Delivered}
	if by != history.Old {
		c.TokenTo = int64(second)
	}
	row.Status, row.Attempts, row.Token = "running", c.Attempts, by != history.Old
	s.Changes = append(s.Changes, c)
}

// end settles a job, "ready" with an error is a retry.
func (s *story) end(id int64, by string, second int, status, text string, accepted ...string) *history.Change {
	row := s.job(id)
	c := history.Change{Job: id, By: by, At: at(second), From: row.Status, To: status, AttemptsFrom: row.Attempts, Attempts: row.Attempts, Error: text}
	if row.Token {
		c.TokenFrom, c.TokenTo = 1, 1
	}
	if status == "ready" {
		c.TokenTo = 0
	}
	c.Accepted = accepted
	row.Delivered = append(slices.Clone(row.Delivered), accepted...)
	c.Delivered, row.Status, row.LastError = row.Delivered, status, text
	s.Changes = append(s.Changes, c)
	return &s.Changes[len(s.Changes)-1]
}

// lapse ends a claim by the end of its lease.
func (s *story) lapse(id int64, by string, second int) {
	c := s.end(id, by, second, "ready", "")
	c.TokenTo, c.Expired = 1, true
}

// release gives a job back with its attempt.
func (s *story) release(id int64, by string, second int) {
	c := s.end(id, by, second, "ready", "")
	c.Attempts--
	s.job(id).Attempts--
}

// arrive puts a message of the job's present attempt at a destination.
func (s *story) arrive(id int64, to string) {
	row := s.job(id)
	a := history.Arrival{To: to, ID: fmt.Sprint("s/", id), Attempt: row.Attempts, Key: row.Key, Payload: row.Payload}
	if row.ReplayOf != 0 {
		a.ID, a.Replay = fmt.Sprint("s/", row.ReplayOf), id
	}
	s.Arrivals = append(s.Arrivals, a)
}

// serve takes a job to its end.
func (s *story) serve(id int64, by string, second int, to ...string) {
	s.claim(id, by, second)
	for _, d := range to {
		s.arrive(id, d)
	}
	s.end(id, by, second+1, "done", "", to...)
}

// fresh is a job of that kind beside the others, which nobody has claimed yet.
func (s *story) fresh(kind string) int64 {
	s.commit(kind, 20)
	return 20
}

func (s *story) fault(name, on, relay string, from, to int) {
	s.Faults = append(s.Faults, history.Fault{Name: name, On: on, Relay: relay, From: at(from), To: at(to)})
}

// without removes the messages of a job at a destination.
func (s *story) without(id int64, to string) {
	s.Arrivals = slices.DeleteFunc(s.Arrivals, func(a history.Arrival) bool {
		return a.To == to && (a.Replay == 0 && a.ID == fmt.Sprint("s/", id) || a.Replay == id)
	})
}
