package history_test

import (
	"maps"
	"testing"

	"github.com/jobrelay/relay/internal/history"
)

// Each way in which a job comes twice, with the fault that can be its cause, and with faults that can't.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	killed := func(s *story) {
		id := s.fresh("plain")
		s.claim(id, one, 10)
		s.arrive(id, kafka)
		s.lapse(id, two, 20)
		s.serve(id, two, 21, kafka)
	}
	silent := func(s *story) {
		id := s.fresh("plain")
		s.claim(id, one, 10)
		s.arrive(id, kafka)
		s.end(id, one, 20, "ready", kafka+": no word from the broker")
		s.serve(id, two, 21, kafka)
	}
	released := func(s *story) {
		id := s.fresh("plain")
		s.claim(id, one, 10)
		s.arrive(id, kafka)
		s.release(id, one, 20)
		s.serve(id, two, 21, kafka)
	}
	forgotten := func(s *story) {
		id := s.fresh("plain")
		s.job(id).Attempts = 1
		s.arrive(id, kafka)
		s.job(id).Attempts = 0
		s.serve(id, two, 21, kafka)
	}
	late := func(s *story) { // the job came after the order to crash
		forgotten(s)
		s.job(20).Created = at(13)
	}
	again := func(s *story) { s.arrive(1, kafka) } // its claim is from 1 to 2
	worked := func(s *story) {
		id := s.fresh("shared")
		s.job(id).Key = s.job(6).Key
		s.workOn(id, 10)
		s.Changes = s.Changes[:len(s.Changes)-1]
		s.job(id).Status = "running"
		s.lapse(id, history.Old, 20)
		s.Changes[len(s.Changes)-1].TokenTo = 0
		s.workOn(id, 21)
	}
	for _, c := range []struct {
		name  string
		tell  func(*story)
		fault history.Fault
		ok    bool
	}{
		{"killed", killed, history.Fault{On: history.OnRelay, Relay: one, From: at(12), To: at(12)}, true},
		{"another process killed", killed, history.Fault{On: history.OnRelay, Relay: two, From: at(12), To: at(12)}, false},
		{"killed before the claim", killed, history.Fault{On: history.OnRelay, Relay: one, From: at(5), To: at(5)}, false},
		{"killed after it was settled", killed, history.Fault{On: history.OnRelay, Relay: one, From: at(25), To: at(25)}, false},
		{"ended in an orderly way", killed, history.Fault{On: history.OnRelay, Relay: one, From: at(12), To: at(13), Harmless: true}, false},
		{"the database away", killed, history.Fault{On: history.OnDatabase, From: at(11), To: at(15)}, true},
		{"the database away for another process", killed, history.Fault{On: history.OnDatabase, Relay: two, From: at(11), To: at(15)}, false},
		{"a lapsed lease and a broker away", killed, history.Fault{On: "kafka", From: at(11), To: at(15)}, false},
		{"the broker silent", silent, history.Fault{On: "kafka", From: at(11), To: at(15)}, true},
		{"another broker silent", silent, history.Fault{On: "rabbitmq", From: at(11), To: at(15)}, false},
		{"the broker silent a little earlier", silent, history.Fault{On: "kafka", From: at(5), To: at(9)}, true},
		{"the broker silent long before", silent, history.Fault{On: "kafka", From: at(5), To: at(8)}, false},
		{"sent and given back", released, history.Fault{On: "kafka", From: at(11), To: at(15)}, false},
		{"a claim that a crash took back", forgotten, history.Fault{On: history.OnDatabase, From: at(11), To: at(15), Forgets: true}, true},
		{"a claim that an orderly stop took back", forgotten, history.Fault{On: history.OnDatabase, From: at(11), To: at(15)}, false},
		{"a claim of a job that came before the crash", late, history.Fault{On: history.OnDatabase, From: at(11), Struck: at(14), To: at(15), Forgets: true}, true},
		{"a claim of a job that came after the crash", late, history.Fault{On: history.OnDatabase, From: at(11), Struck: at(12), To: at(15), Forgets: true}, false},
		{"a claim of a job that came after a crash at once", late, history.Fault{On: history.OnDatabase, From: at(11), To: at(15), Forgets: true}, false},
		{"sent again after it was settled", again, history.Fault{On: "kafka", From: at(0), To: at(9)}, false},
		{"sent again within the claim", again, history.Fault{On: "kafka", From: at(1), To: at(2), Resent: true}, true},
		{"sent again within the claim for another broker", again, history.Fault{On: "rabbitmq", From: at(1), To: at(2), Resent: true}, false},
		{"sent again within the claim without a no", again, history.Fault{On: "kafka", From: at(1), To: at(2)}, false},
		{"sent again within the claim, which had ended", again, history.Fault{On: "kafka", From: at(3), To: at(4), Resent: true}, false},
		{"old workers cut off", worked, history.Fault{On: history.OnDatabase, From: at(11), To: at(15)}, true},
		{"old workers beside a silent broker", worked, history.Fault{On: "kafka", From: at(11), To: at(15)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.tell(s)
			c.fault.Name = "the fault"
			s.Faults = append(s.Faults, c.fault)
			r := history.Check(s.History)
			want := map[string]int{}
			if c.ok {
				want["the fault"] = 1
			}
			if !maps.Equal(r.Duplicates, want) || (r.Count(history.Unexplained) == 0) != c.ok || r.Count(history.Unexplained) != len(r.Findings) {
				t.Errorf("duplicates %v, want %v; findings %v", r.Duplicates, want, r.Findings)
			}
		})
	}
}

// A fault has a claim send once more, not twice.
func TestSentAgainOnce(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.arrive(1, kafka)
	s.arrive(1, kafka)
	s.Faults = append(s.Faults, history.Fault{Name: "the fault", On: "kafka", From: at(1), To: at(2), Resent: true})
	if r := history.Check(s.History); r.Duplicates["the fault"] != 1 || r.Count(history.Unexplained) != 1 {
		t.Errorf("duplicates %v, %d unexplained, want one each", r.Duplicates, r.Count(history.Unexplained))
	}
}

// A FIFO queue keeps the first attempt and takes the second for the same message.
func TestFIFOKeepsTheFirst(t *testing.T) {
	t.Parallel()
	s := newStory()
	id := s.fresh("queue")
	s.claim(id, one, 10)
	s.arrive(id, fifo)
	s.end(id, one, 20, "ready", fifo+": no word from the broker")
	s.fault("silence", "sqs", "", 11, 15)
	s.claim(id, two, 21)
	s.end(id, two, 22, "done", "", fifo)
	if r := history.Check(s.History); len(r.Findings) > 0 || len(r.Duplicates) > 0 {
		t.Errorf("findings %v, duplicates %v, want none", r.Findings, r.Duplicates)
	}
}

// A late acknowledgement ends a lapsed claim, as long as nobody else has claimed the job.
func TestLateAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newStory()
	id := s.fresh("plain")
	s.claim(id, one, 10)
	s.arrive(id, kafka)
	s.lapse(id, two, 20)
	s.end(id, one, 21, "done", "", kafka)
	r := history.Check(s.History)
	if len(r.Findings) > 0 || r.Lapsed != 1 {
		t.Errorf("findings %v, %d lapsed, want none and 1", r.Findings, r.Lapsed)
	}
}
