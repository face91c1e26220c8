package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	list := flags.Bool("list", false, "list the edits as a table and run nothing")
	match := flags.String("run", "", "only edits whose name matches this regular expression")
	timeout := flags.Duration("timeout", 3*time.Minute, "for the tests of one edit; tests that take longer haven't killed it")
	_ = flags.Parse(args) // exits
	only, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	chosen := slices.DeleteFunc(mutants(), func(m mutant) bool { return !only.MatchString(m.name) })
	switch {
	case len(chosen) == 0:
		return fmt.Errorf("-run: no edit's name matches %q", *match)
	case *list:
		fmt.Print(table(chosen))
		return nil
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "relay-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return all(ctx, &bench{root: root, dir: dir, timeout: *timeout, sound: map[string]error{}}, chosen)
}

// all tries the edits one after the other and says what became of each.
func all(ctx context.Context, b *bench, chosen []mutant) error {
	var alive []string
	start := time.Now()
	for _, m := range chosen {
		began := time.Now()
		v := b.try(ctx, m)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		word := "killed  "
		if !v.killed {
			word, alive = "SURVIVED", append(alive, m.name)
		}
		fmt.Printf("%s  %-3s  %-55s  %5.1fs  %s: %s\n", word, m.promise, m.name, time.Since(began).Seconds(), m.pkg, v.by)
	}
	fmt.Printf("%d edits, %d killed, in %v\n", len(chosen), len(chosen)-len(alive), time.Since(start).Round(time.Second))
	if len(alive) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(alive, ", "))
	}
	return nil
}

// table lists the edits by promise, as docs/guarantees.md has them.
func table(chosen []mutant) string {
	number := func(m mutant) int { n, _ := strconv.Atoi(m.promise[1:]); return n }
	chosen = slices.SortedStableFunc(slices.Values(chosen), func(a, b mutant) int { return cmp.Compare(number(a), number(b)) })
	var text strings.Builder
	text.WriteString("| promise | what is wrong | edited | noticed by |\n| --- | --- | --- | --- |\n")
	for _, m := range chosen {
		fmt.Fprintf(&text, "| %s | %s | `%s` | `%s` %s |\n", m.promise, m.name, m.file, m.pkg, strings.ReplaceAll(m.tests, "|", ", "))
	}
	return text.String()
}

// moduleRoot is the folder of the module that the working directory is in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
