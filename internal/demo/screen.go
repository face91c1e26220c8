package demo

import (
	"fmt"
	"io"
	"sync"

	"github.com/schollz/progressbar/v3"

	"github.com/jobrelay/relay/internal/bar"
)

// Screen shares a terminal between job lines, notes and a progress bar: text goes above the bar. Without a terminal
// it only keeps lines whole.
type Screen struct {
	mu     sync.Mutex
	bar    *progressbar.ProgressBar
	shared bool // standard output shows on the bar's terminal
}

// NewScreen draws a bar on err if that is a terminal. jobs is the bar's length, 0 for a demo without end.
func NewScreen(err io.Writer, jobs int, errIsTerminal, outIsTerminal bool) *Screen {
	s := &Screen{shared: outIsTerminal}
	if !errIsTerminal {
		return s
	}
	s.bar = bar.New(err, int64(jobs))
	return s
}

// Show moves the bar.
func (s *Screen) Show(p Progress) {
	if s.bar == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar.Describe(fmt.Sprintf("delivered (committed %d, rolled back %d)", p.Committed, p.RolledBack))
	_ = s.bar.Set(p.Delivered)
}

// End takes the bar away.
func (s *Screen) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Clear()
		s.bar = nil
	}
}

// Out is standard output beside the bar, Err standard error.
func (s *Screen) Out(w io.Writer) io.Writer { return &region{s, w, s.shared} }
func (s *Screen) Err(w io.Writer) io.Writer { return &region{s, w, true} }

type region struct {
	screen *Screen
	to     io.Writer
	above  bool // it shows where the bar does
}

func (r *region) Write(p []byte) (int, error) {
	r.screen.mu.Lock()
	defer r.screen.mu.Unlock()
	bar := r.screen.bar
	if bar == nil || !r.above {
		return r.to.Write(p)
	}
	_ = bar.Clear()
	n, err := r.to.Write(p)
	_ = bar.RenderBlank()
	return n, err
}
