package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/spf13/cobra"
)

const checkTimeout = 10 * time.Second // of each check; they run at once

func checkCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Check settings, database, schema, privileges and every destination before a start",
		Long: `Check everything that the relay needs, without changing anything: the settings, the database, its schema and
privileges, the plan of a claim, LISTEN, and each destination with its broker (where the address depends on the job, what
all jobs share of it). A line a finding: ok, warn or fail, the subject, and what was found. Exit 1 if one failed.`,
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(c, "an object per finding")
	c.RunE = func(c *cobra.Command, _ []string) error {
		found, err := a.check(c.Context())
		if err != nil {
			return err
		}
		return a.printFindings(found, *asJSON)
	}
	return c
}

func (a *app) printFindings(found []ops.Finding, asJSON bool) error {
	failed := false
	for _, f := range found {
		failed = failed || f.Level == ops.Fail
		f.Subject, f.Text = printable(f.Subject), printable(f.Text)
		var err error
		if asJSON {
			err = printJSON(a.stdout, f)
		} else {
			_, err = fmt.Fprintf(a.stdout, "%-4s  %-14s  %s\n", f.Level, f.Subject, f.Text)
		}
		if err != nil {
			return err
		}
	}
	if failed {
		return errReported
	}
	return nil
}

// check runs all checks at once and returns their findings in a fixed order.
func (a *app) check(ctx context.Context) ([]ops.Finding, error) {
	s, problems, warnings := read(a.env, config.Need{DatabaseURL: true, Routes: true})
	s.log = a.logger(s.LogLevel, s.LogFormat)
	found := settingsFindings(problems, warnings)
	if len(problems) > 0 {
		return found, nil // what else could be asked depends on them
	}
	db, err := pool(ctx, string(s.DatabaseURL), checkConnections)
	if err != nil {
		return nil, err
	}
	defer closePools(db)
	open, err := s.openSinks()
	if err != nil {
		return nil, err
	}
	defer closeSinks(open, s.log)
	checks := append([]check{s.databaseCheck(db), s.listenCheck()}, s.sinkChecks(open)...)
	return append(found, together(ctx, checks)...), nil
}

func settingsFindings(problems config.Problems, warnings []string) []ops.Finding {
	var found []ops.Finding
	for _, p := range problems {
		found = append(found, ops.Finding{Level: ops.Fail, Subject: "settings", Text: p.Text})
	}
	for _, w := range warnings {
		found = append(found, ops.Finding{Level: ops.Warn, Subject: "settings", Text: w})
	}
	if len(problems) == 0 {
		found = append(found, ops.Finding{Level: ops.OK, Subject: "settings", Text: "every setting can be used"})
	}
	return found
}

// check is one thing to find out.
type check func(context.Context) []ops.Finding

// together runs checks at once, each within the bound, and returns their findings in the order of the checks.
func together(ctx context.Context, checks []check) []ops.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results := make([]chan []ops.Finding, len(checks))
	for i, c := range checks {
		results[i] = make(chan []ops.Finding, 1)
		go func() { results[i] <- c(ctx) }()
	}
	var found []ops.Finding
	for _, r := range results {
		found = append(found, <-r...)
	}
	return found
}
