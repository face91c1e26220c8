package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jobrelay/relay/config"
	"golang.org/x/term"
)

// app is what a command has of the world.
type app struct {
	env     config.Environ
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	abandon context.Context // ends at the second signal: give up at once
	started bool            // a command's own code has begun
}

// usageError is a command line that can't work.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported is a failure that has been told already, as a result on standard output.
var errReported = errors.New("reported")

// signals returns a context that ends at the first SIGTERM or SIGINT and one that ends at the second. A third has
// its usual effect: the process dies.
func signals(parent context.Context) (first, second context.Context, stop func()) {
	first, endFirst := context.WithCancel(parent)
	second, endSecond := context.WithCancel(parent)
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGTERM, syscall.SIGINT)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(got)
		for _, end := range []context.CancelFunc{endFirst, endSecond} {
			select {
			case <-got:
				end()
			case <-quit:
				return
			}
		}
	}()
	return first, second, func() {
		close(quit)
		<-ended
		endFirst()
		endSecond()
	}
}

// logger logs to standard error: text on a terminal, JSON elsewhere, unless format says which.
func (a *app) logger(level slog.Level, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "" && isTerminal(a.stderr) {
		return slog.New(slog.NewTextHandler(a.stderr, o))
	}
	return slog.New(slog.NewJSONHandler(a.stderr, o))
}

// isTerminal says whether w shows to a person. Output that isn't a file is none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// oneLine folds a text with line breaks, as clients write them for several addresses, into one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// printable is oneLine for what others wrote (kinds, keys, a broker's words): control characters, which a terminal
// would obey, are shown instead.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, oneLine(text))
}
