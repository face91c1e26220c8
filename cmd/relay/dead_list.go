package main

import (
	"bufio"
	"fmt"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func deadListCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead jobs, a job a line: id, kind, key, attempts, time of death, last error",
		Args:  cobra.NoArgs,
	}
	var flags jobFilter
	flags.addDead(c)
	asJSON := jsonFlag(c, "an object per job")
	c.RunE = func(c *cobra.Command, _ []string) error {
		filter, err := flags.filter(c)
		if err != nil {
			return err
		}
		return a.withStore(c.Context(), func(_ *settings, store *claim.Store) error {
			out := bufio.NewWriter(a.stdout)
			err := store.ListDead(c.Context(), filter, func(d claim.DeadJob) error {
				if *asJSON {
					return printJSON(out, newDeadJob(d))
				}
				_, err := fmt.Fprintf(out, "%-8d  %-20s  %-16s  %5s  %-20s  %s\n", d.ID, printable(d.Kind), key(d.Key),
					fmt.Sprintf("%d/%d", d.Attempts, d.MaxAttempts), printTime(d.FinishedAt), printable(d.LastError))
				return err
			})
			if flushed := out.Flush(); err == nil {
				err = flushed
			}
			return err
		})
	}
	return c
}
