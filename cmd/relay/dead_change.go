package main

import (
	"context"
	"fmt"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func deadRequeueCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "requeue",
		Short: "Give dead jobs a full new round: attempts 0, due now",
		Long: `Give dead jobs a full new round: attempts 0, due now. Wants a filter or --all. Prints how many were changed, skipped
(they aren't dead any more) and not found; exit 1 when ids were given and none was changed.`,
	}
	rate := newRateFlag(c, "jobs")
	return deadChangeCommand(a, c, func(s *claim.Store, ctx context.Context, f claim.Filter, dryRun bool) (claim.Changed, error) {
		f.Rate = rate.n
		return s.RequeueDead(ctx, f, dryRun)
	})
}

func deadDiscardCommand(a *app) *cobra.Command {
	return deadChangeCommand(a, &cobra.Command{
		Use:   "discard",
		Short: "Delete dead jobs",
		Long: `Delete dead jobs for good. Wants a filter or --all. Prints how many were changed, skipped (they aren't dead any
more) and not found; exit 1 when ids were given and none was changed.`,
	}, (*claim.Store).DiscardDead)
}

type deadChange func(*claim.Store, context.Context, claim.Filter, bool) (claim.Changed, error)

func deadChangeCommand(a *app, c *cobra.Command, change deadChange) *cobra.Command {
	c.Args = cobra.NoArgs
	var flags jobFilter
	flags.addDead(c)
	flags.addAll(c, "dead")
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, only count")
	asJSON := jsonFlag(c, "the counts")
	c.RunE = func(c *cobra.Command, _ []string) error {
		filter, err := flags.choice(c)
		if err != nil {
			return err
		}
		return a.withStore(c.Context(), func(_ *settings, store *claim.Store) error {
			n, err := change(store, c.Context(), filter, *dryRun)
			if printed := a.printChanged(n, *dryRun, *asJSON); err == nil {
				err = printed
			}
			if err != nil {
				return err
			}
			if len(filter.IDs) > 0 && n.Changed == 0 {
				return errReported
			}
			return nil
		})
	}
	return c
}

// printChanged prints what was done, also when it was interrupted.
func (a *app) printChanged(n claim.Changed, dryRun, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, struct {
			Changed  int64 `json:"changed"`
			Skipped  int64 `json:"skipped"`
			NotFound int64 `json:"not_found"`
			DryRun   bool  `json:"dry_run"`
		}{n.Changed, n.Skipped, n.NotFound, dryRun})
	}
	mark := ""
	if dryRun {
		mark = "dry run: "
	}
	_, err := fmt.Fprintf(a.stdout, "%schanged %d, skipped %d, not found %d\n", mark, n.Changed, n.Skipped, n.NotFound)
	return err
}
