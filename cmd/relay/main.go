package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jobrelay/relay/config"
)

func main() {
	os.Exit(run(os.Args[1:], config.OS(), os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // usage or configuration
)

// run is the whole program: it runs one command and returns its exit code.
func run(args []string, env config.Environ, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, abandon, stop := signals(context.Background())
	defer stop()
	a := &app{env: env, stdin: stdin, stdout: stdout, stderr: stderr, abandon: abandon}
	root := newRoot(a)
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

// report writes an error to standard error, one line per problem, and returns the exit code that it means.
func (a *app) report(err error) int {
	var usage usageError
	var problems config.Problems
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	case errors.As(err, &problems):
		for _, p := range problems {
			_, _ = fmt.Fprintln(a.stderr, oneLine(p.Text))
		}
		return exitUsage
	case errors.As(err, &usage) || !a.started: // before a command starts only its command line can be wrong
		_, _ = fmt.Fprintf(a.stderr, "relay: %s (relay --help shows the usage)\n", oneLine(err.Error()))
		return exitUsage
	default:
		_, _ = fmt.Fprintf(a.stderr, "relay: %s\n", oneLine(err.Error()))
		return exitFailed
	}
}
