package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/spf13/cobra"
)

const statusTimeout = 30 * time.Second

func statusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what waits, runs and is dead, by kind",
		Long: `Show what waits, runs and is dead, by kind, with the age of the oldest due job. With routes in the environment it
says which kinds have one. Counts stop at 100,000 per kind and status.`,
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(c, "the status")
	c.RunE = func(c *cobra.Command, _ []string) error {
		status, err := a.status(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(a.stdout, status)
		}
		return a.printStatus(status)
	}
	return c
}

func (a *app) status(ctx context.Context) (ops.Status, error) {
	s, err := a.load(config.Need{DatabaseURL: true})
	if err != nil {
		return ops.Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	db, err := pool(ctx, string(s.DatabaseURL), adminConnections)
	if err != nil {
		return ops.Status{}, err
	}
	defer db.Close()
	store, err := s.store(db)
	if err != nil {
		return ops.Status{}, err
	}
	if err := s.nameSource(ctx, db); err != nil {
		return ops.Status{}, explain(err)
	}
	figures, err := store.Figures(ctx)
	if err != nil {
		return ops.Status{}, explain(err)
	}
	return ops.NewStatus(s.Source, figures, s.known()), nil
}

func (a *app) printStatus(s ops.Status) error {
	_, _ = fmt.Fprintf(a.stdout, "source %s, lag %s, dead tuples %d\n", s.Source, seconds(s.LagSeconds), s.DeadTuples)
	if o := s.OldestSnapshot; o != nil {
		_, _ = fmt.Fprintf(a.stdout, "oldest snapshot: %s, process %d, %s, %s\n", seconds(o.AgeSeconds), o.PID, printable(o.State), orDash(printable(o.Application)))
	}
	if len(s.Kinds) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no unfinished jobs")
		return err
	}
	t := table(a.stdout)
	_, _ = fmt.Fprintln(t, "KIND\tROUTED\tREADY\tDUE\tRUNNING\tDEAD\tCLOSED KEYS\tOLDEST DUE")
	capped := false
	for _, k := range s.Kinds {
		capped = capped || k.Capped
		routed := "?"
		if k.Routed != nil {
			routed = map[bool]string{true: "yes", false: "no"}[*k.Routed]
		}
		oldest := "-"
		if k.Due > 0 {
			oldest = seconds(k.OldestDueSeconds)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", printable(k.Kind), routed, k.Ready, k.Due, k.Running, k.Dead, k.ClosedKeys, oldest)
	}
	if capped {
		_, _ = fmt.Fprintln(t, "counts stop at 100,000 for each kind and status")
	}
	return t.Flush()
}
