package demo

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Summary is what the demo has proved, or not.
type Summary struct {
	Committed  int     `json:"committed"`
	RolledBack int     `json:"rolled_back"`
	Delivered  int     `json:"delivered"`  // committed jobs that every destination has accepted
	Duplicates int     `json:"duplicates"` // deliveries beyond the first
	Lost       int     `json:"lost"`       // committed jobs that have not arrived
	Phantoms   int     `json:"phantoms"`   // delivered jobs whose transaction didn't commit
	P50        float64 `json:"latency_p50_seconds"`
	P99        float64 `json:"latency_p99_seconds"`
}

// Summary adds up. unsettled are the ids of committed jobs that some destination has not accepted: they count as
// lost, whatever else has arrived.
func (l *Ledger) Summary(unsettled map[int64]bool) Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Summary{Committed: l.committed, RolledBack: l.rolledBack}
	var latencies []time.Duration
	for id, e := range l.jobs {
		s.Duplicates += max(0, e.copies-1)
		switch {
		case e.committed.IsZero():
			s.Phantoms++
		case e.copies == 0 || unsettled[id]:
			s.Lost++
		default:
			s.Delivered++
			latencies = append(latencies, e.delivered.Sub(e.committed))
		}
	}
	slices.Sort(latencies)
	s.P50, s.P99 = percentile(latencies, 50), percentile(latencies, 99)
	return s
}

// percentile returns the nearest rank of sorted durations, in seconds.
func percentile(sorted []time.Duration, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1].Seconds()
}

// Good: every committed job was delivered, and no other.
func (s Summary) Good() bool { return s.Delivered == s.Committed && s.Lost == 0 && s.Phantoms == 0 }

// Write writes the summary for people, a figure a line.
func (s Summary) Write(w io.Writer) error {
	lines := fmt.Sprintf("committed %d\nrolled back %d\ndelivered %d\nduplicates %d\nlost %d\n",
		s.Committed, s.RolledBack, s.Delivered, s.Duplicates, s.Lost)
	if s.Phantoms > 0 {
		lines += fmt.Sprintf("delivered although not committed %d\n", s.Phantoms)
	}
	lines += fmt.Sprintf("latency p50 %s\nlatency p99 %s\n", millis(s.P50), millis(s.P99))
	_, err := io.WriteString(w, lines)
	return err
}

func millis(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1000) }
