package stdout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jobrelay/relay/sinks"
)

// sink writes each batch with one Write.
//
// Nothing can stop a Write that hangs because whoever reads the pipe has stopped. So it runs in a goroutine that holds
// the pen; Publish leaves it behind when its time is over, and who comes next waits for the pen in vain: there is
// never more than one.
type sink struct {
	settings *Settings
	w        io.Writer
	pens     chan pen // holds the one pen while nobody writes
	closed   context.Context
	close    context.CancelCauseFunc
}

// pen is the right to write.
type pen struct {
	torn bool // the last line was written in part: the next write ends it first
}

var errClosed = errors.New("the sink is closed")

func newSink(settings *Settings, w io.Writer) *sink {
	s := &sink{settings: settings, w: w, pens: make(chan pen, 1)}
	s.pens <- pen{}
	s.closed, s.close = context.WithCancelCause(context.Background())
	return s
}

func (s *sink) Publish(ctx context.Context, batch []sinks.Message, results []sinks.Result) {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel(nil)
	p, err := s.take(ctx)
	if err != nil {
		for i := range results {
			results[i] = unavailable(fmt.Errorf("stdout: time over before its turn: %w", err))
		}
		return
	}
	text, lines := s.render(batch, results, p.torn)
	n, err := s.write(ctx, p, text)
	for i, l := range lines {
		if l.end > 0 {
			results[i] = l.result(n, err)
		}
	}
}

// KeepsOrder promises it: a batch is one write, and a write that may still go on holds the pen.
func (s *sink) KeepsOrder() {}

// untilClosed is ctx, ended by Close as well.
func (s *sink) untilClosed(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closed, func() { cancel(errClosed) })
	return ctx, func(err error) {
		stop()
		cancel(err)
	}
}

// take waits for the pen.
func (s *sink) take(ctx context.Context) (pen, error) {
	if s.closed.Err() != nil {
		return pen{}, errClosed
	}
	if ctx.Err() != nil {
		return pen{}, context.Cause(ctx)
	}
	select {
	case p := <-s.pens:
		return p, nil
	case <-ctx.Done():
		return pen{}, context.Cause(ctx)
	}
}

// line is where a message lies in the text; end is 0 for one that isn't in it.
type line struct{ start, end int }

// render writes the lines of a batch, and rejects what can't be written.
func (s *sink) render(batch []sinks.Message, results []sinks.Result, torn bool) ([]byte, []line) {
	var text bytes.Buffer
	var runs sinks.Runs
	lines := make([]line, len(batch))
	if torn {
		text.WriteByte('\n')
	}
	for i := range batch {
		if r, waits := runs.Waits(&batch[i]); waits {
			results[i] = r
			continue
		}
		start := text.Len()
		err := s.settings.CheckAddress(batch[i].Address)
		if err == nil {
			err = appendLine(&text, &batch[i])
		}
		if err != nil {
			results[i] = sinks.Result{Outcome: sinks.Rejected, Err: err}
			runs.Stop(&batch[i], sinks.Rejected)
			continue
		}
		lines[i] = line{start, text.Len()}
	}
	return text.Bytes(), lines
}

// errNoWord: the write hasn't returned, and whether it will nobody knows.
var errNoWord = errors.New("stdout: the write doesn't return")

// write hands the text to the writer, and gives the pen back when the writer is done with it, however late.
func (s *sink) write(ctx context.Context, p pen, text []byte) (int, error) {
	if len(text) == 0 {
		s.pens <- p
		return 0, nil
	}
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	go func() {
		n, err := s.w.Write(text)
		if n < len(text) && err == nil {
			err = io.ErrShortWrite
		}
		if n > 0 {
			p.torn = text[n-1] != '\n'
		}
		s.pens <- p
		done <- written{n, err}
	}()
	select {
	case w := <-done:
		return w.n, w.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", errNoWord, context.Cause(ctx))
	}
}

// result says what became of a line when n bytes of the text were written. A line that was written is accepted also
// when a later one wasn't; one that was begun may have been read, and one that wasn't begun never was.
func (l line) result(n int, err error) sinks.Result {
	switch {
	case l.end <= n:
		return sinks.Result{Outcome: sinks.Accepted}
	case errors.Is(err, errNoWord):
		return sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: err}
	case l.start < n:
		return sinks.Result{Outcome: sinks.Unknown, Scope: sinks.ScopeSink, Err: fmt.Errorf("stdout: written in part: %w", err)}
	default:
		return unavailable(fmt.Errorf("stdout: not written: %w", err))
	}
}

func unavailable(err error) sinks.Result {
	return sinks.Result{Outcome: sinks.Unavailable, Scope: sinks.ScopeSink, Err: err}
}

// Check waits for a write that is under way: one that hangs is a sink that takes nothing.
func (s *sink) Check(ctx context.Context, address string) error {
	if err := s.settings.CheckAddress(address); err != nil {
		return err
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel(nil)
	p, err := s.take(ctx)
	if err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	s.pens <- p
	return nil
}

// Close ends what waits. It leaves the writer open, which isn't the sink's.
func (s *sink) Close(context.Context) error {
	s.close(errClosed)
	return nil
}
