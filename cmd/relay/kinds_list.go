package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/spf13/cobra"
)

// kindsWindow is how far back `kinds list` looks.
const kindsWindow = 10 * time.Minute

func kindsListCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "Show how each kind is divided between relays and other workers, and who did what lately",
		Long: `Show for each kind its share, and for both sides (relays / others) what they finished lately, how fast, and what waits
for them. A finished job counts for relays when it carries a lease token, else for others.

What finished in the last ten minutes counts, but nothing of before the last change of the share, and at most 10,000 jobs
of a kind; BACK says how far that reaches. What waits is looked for in the first 10,000 unfinished jobs; a + says that
there are more. The relays' part is shown in per cent of the jobs and of their keys (a job without a key is one of its own).

Jobs that were deleted can't be counted. Where relays don't keep done jobs (RELAY_RETENTION=0) there is no part to show,
and where they keep them for less than ten minutes it looks too small: set RELAY_RETENTION here as the relays have it, and
both sides are compared over that time. With routes in the environment each row is held against its route's share.`,
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(c, "an object per kind")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withStore(c.Context(), func(s *settings, store *claim.Store) error {
			kinds, err := a.kindShares(c.Context(), s, store)
			if err != nil {
				return err
			}
			if !*asJSON {
				return a.printKinds(kinds)
			}
			for _, k := range kinds {
				if err := printJSON(a.stdout, k); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

func (a *app) kindShares(ctx context.Context, s *settings, store *claim.Store) ([]ops.KindShare, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	known := ops.KindsKnown{Serves: s.serves(), RouteShare: s.routeShare}
	window := kindsWindow
	// The default says nothing about relays that are configured elsewhere.
	if strings.TrimSpace(a.env["RELAY_RETENTION"]) != "" {
		known.DeletesDone = s.Retention == 0
		if s.Retention > 0 {
			window = min(window, s.Retention)
		}
	}
	stats, err := store.KindStats(ctx, window)
	if err != nil {
		return nil, err
	}
	var out []ops.KindShare
	for _, k := range stats {
		out = append(out, ops.NewKindShare(k, known))
	}
	return out, nil
}

// printKinds prints the table and then what a reader of it must know.
func (a *app) printKinds(kinds []ops.KindShare) error {
	if len(kinds) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no kinds: no jobs, and no shares")
		return err
	}
	_, _ = fmt.Fprintln(a.stdout, "each: relays / others")
	t := table(a.stdout)
	_, _ = fmt.Fprintln(t, "KIND\tSHARE\tDONE\tPER SECOND\tDEAD\tRELAYS' PART\tOF KEYS\tREADY\tBACK")
	for _, k := range kinds {
		printKind(t, k)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if kinds[0].Relay.Done == nil {
		_, _ = fmt.Fprintln(a.stdout, "relays delete what is done (RELAY_RETENTION=0): their metric relay_jobs_settled_total counts it")
	}
	for _, k := range kinds {
		for _, n := range k.Notes {
			if _, err := fmt.Fprintf(a.stdout, "%s: %s\n", printable(k.Kind), n); err != nil {
				return err
			}
		}
	}
	return nil
}

func printKind(w io.Writer, k ops.KindShare) {
	share, more := "-", ""
	if k.Share != nil {
		share = fmt.Sprintf("%d %%", *k.Share)
	}
	if k.ReadyCapped {
		more = "+"
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%s / %s\t%s / %s\t%d / %d\t%s\t%s\t%d%s / %d%s\t%s\n", printable(k.Kind), share,
		count(k.Relay.Done), count(k.Others.Done), rate(k.Relay.DonePerSecond), rate(k.Others.DonePerSecond),
		k.Relay.Dead, k.Others.Dead, percentage(k.Percent), percentage(k.PercentOfKeys),
		k.Relay.Ready, more, k.Others.Ready, more, seconds(k.Seconds))
}

func count(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func rate(r *float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *r)
}

func percentage(p *float64) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", *p)
}
