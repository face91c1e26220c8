package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestLedgerAddsUp(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	begin := time.Now()
	l.Committed([]int64{1, 2, 3, 4, 5}, begin)
	l.RolledBack([]int64{6, 7})
	l.Delivered(1, begin.Add(10*time.Millisecond))
	l.Delivered(2, begin.Add(20*time.Millisecond))
	l.Delivered(2, begin.Add(30*time.Millisecond)) // twice
	l.Delivered(3, begin.Add(40*time.Millisecond)) // but some destination has not accepted it
	l.Delivered(6, begin.Add(50*time.Millisecond)) // rolled back!
	l.Delivered(5, begin.Add(60*time.Millisecond))
	got := l.Summary(map[int64]bool{3: true, 4: true})
	want := Summary{Committed: 5, RolledBack: 2, Delivered: 3, Duplicates: 1, Lost: 2, Phantoms: 1, P50: 0.02, P99: 0.06}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got.Good() {
		t.Error("a summary with losses is good")
	}
}

// A job may arrive before its transaction's answer does.
func TestDeliveredBeforeCommitted(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	asked := time.Now()
	l.Delivered(1, asked.Add(time.Millisecond))
	l.Committed([]int64{1}, asked)
	if p := l.Progress(); p != (Progress{Committed: 1, Delivered: 1}) {
		t.Errorf("%+v", p)
	}
	if s := l.Summary(nil); !s.Good() || s.P99 != 0.001 {
		t.Errorf("%+v", s)
	}
}

func TestSummaryInWords(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := (Summary{Committed: 10, RolledBack: 5, Delivered: 9, Duplicates: 1, Lost: 1, P50: 0.0031, P99: 0.012}).Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "committed 10\nrolled back 5\ndelivered 9\nduplicates 1\nlost 1\nlatency p50 3.1 ms\nlatency p99 12.0 ms\n"
	if b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(i+1)*time.Second)
	}
	for p, want := range map[int]float64{50: 100, 99: 198, 100: 200, 0: 1} {
		if got := percentile(ds, p); got != want {
			t.Errorf("p%d is %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// The sink writes whole batches, a pipe may take them in pieces.
func TestWitnessReadsLines(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	l.Committed([]int64{1, 2, 3}, time.Now())
	var out bytes.Buffer
	w := NewWitness(l, &out)
	text := `{"id":"demo/1","payload":{"id":"x/9"}}` + "\nnot json\n" + `{"id":"a/b/2"}` + "\n" + `{"id":"demo/x"}` + "\n" + `{"id":"demo/3"}`
	for i := range len(text) {
		if _, err := fmt.Fprint(w, text[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if p := l.Progress(); p.Delivered != 2 {
		t.Errorf("%d delivered, want 2: the third line has no end", p.Delivered)
	}
	_, _ = fmt.Fprintln(w)
	if p := l.Progress(); p.Delivered != 3 || out.String() != text+"\n" {
		t.Errorf("%+v, %q", p, out.String())
	}
}

func TestCounterHandsOutExactly(t *testing.T) {
	t.Parallel()
	c := &counter{left: 5}
	a, _ := c.take(3)
	b, _ := c.take(3)
	n, more := c.take(1)
	if a != 3 || b != 2 || n != 0 || !more {
		t.Errorf("%d, %d, %d, %v", a, b, n, more)
	}
	c.settle(3, false)
	c.settle(2, true)
	if n, more := c.take(9); n != 3 || !more {
		t.Errorf("%d, %v: what was rolled back isn't handed out again", n, more)
	}
	c.settle(3, true)
	if n, more := c.take(1); n != 0 || more {
		t.Errorf("%d, %v: the shop doesn't close", n, more)
	}
}

func TestScreenKeepsTextAboveTheBar(t *testing.T) {
	t.Parallel()
	var terminal bytes.Buffer
	s := NewScreen(&terminal, 0, true, true)
	s.Show(Progress{Committed: 3, RolledBack: 1, Delivered: 2})
	if _, err := fmt.Fprintln(s.Out(&terminal), "a job"); err != nil {
		t.Fatal(err)
	}
	s.End()
	before := terminal.Len()
	s.Show(Progress{Committed: 4})
	if text := terminal.String(); !strings.Contains(text, "a job\n") || !strings.Contains(text, "committed 3, rolled back 1") || terminal.Len() != before {
		t.Errorf("%q", text)
	}
	var pipe bytes.Buffer
	s = NewScreen(&pipe, 5, false, false)
	s.Show(Progress{Committed: 3})
	_, _ = fmt.Fprintln(s.Err(&pipe), "a note")
	s.End()
	if pipe.String() != "a note\n" {
		t.Errorf("%q", pipe.String())
	}
}
