package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/config"
	"github.com/spf13/cobra"
)

const replayLong = `Send done jobs once more: insert copies of them, in the order of their ids, that relays then send like any other job.
Wants a filter or --all; times are those at which the jobs were done. A copy keeps the message id and carries
relay-replay. Relays must own the chosen kinds whole (relay kinds set KIND 100).

Progress is kept under a name, which is made from the filter unless --name gives one. The same command goes on after an
interruption and repeats nothing; a duration back from now means what it meant at the first run. A finished replay runs
again only with --again.

Copies come evenly, --rate a second, and never more unfinished ones than two seconds' worth (at least 100, at most 5,000):
while relays don't keep up, the replay waits.

With --destination they go to that one only, and only jobs that it hasn't had are copied; --again sends those as well.
It needs the routes (RELAY_ROUTES or RELAY_ROUTES_FILE). Prints the name, how many were copied and skipped by this run, and
how many were copied in all; interrupted, exit 1.`

// nameForm is what a replay may be called.
var nameForm = regexp.MustCompile(`^[!-~]{1,100}$`)

// replayFlags are the command's flags.
type replayFlags struct {
	jobFilter
	name, destination     string
	rate                  *rateFlag
	again, dryRun, asJSON *bool
}

func replayCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "replay", Short: "Send done jobs once more", Long: replayLong, Args: cobra.NoArgs}
	var f replayFlags
	f.add(c, "were done")
	f.addAll(c, "done")
	c.Flags().StringVar(&f.name, "name", "", "keep the progress under this name (default: made from the filter)")
	c.Flags().StringVar(&f.destination, "destination", "", "send to this destination only, written as in the routes")
	f.rate = newRateFlag(c, "copies")
	f.again = c.Flags().Bool("again", false, "run a finished replay again; with --destination also send what that one has had")
	f.dryRun = c.Flags().Bool("dry-run", false, "change nothing, only show what would be copied")
	f.asJSON = jsonFlag(c, "the summary")
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := f.replay(c)
		if err != nil {
			return err
		}
		s, err := a.load(config.Need{DatabaseURL: true, Routes: f.destination != ""})
		if err != nil {
			return err
		}
		if r.Others, err = s.others(r.Filter); err != nil {
			return err
		}
		return a.withStoreOf(c.Context(), s, func(_ *settings, store *claim.Store) error {
			return a.replay(c.Context(), store, r, *f.asJSON)
		})
	}
	return c
}

// replay checks the flags.
func (f *replayFlags) replay(c *cobra.Command) (claim.Replay, error) {
	chosen, err := f.choice(c)
	if err != nil {
		return claim.Replay{}, err
	}
	for name, value := range map[string]string{"name": f.name, "destination": f.destination} {
		if c.Flags().Changed(name) && value == "" {
			return claim.Replay{}, usagef("--%s is empty", name)
		}
	}
	if f.name != "" && !nameForm.MatchString(f.name) {
		return claim.Replay{}, usagef("--name %q: must be up to 100 printable ASCII characters without space", f.name)
	}
	filter := claim.ReplayFilter{
		Kind: chosen.Kind, IDs: chosen.IDs, Limit: chosen.Limit, Destination: f.destination,
		Since: claim.Moment{Written: f.since.written, Time: f.since.t}, Until: claim.Moment{Written: f.until.written, Time: f.until.t},
	}
	if chosen.HasKey {
		filter.Key = &chosen.Key
	}
	return claim.Replay{Name: f.name, Filter: filter, Again: *f.again, Rate: f.rate.n, DryRun: *f.dryRun}, nil
}

// others says where the copies for a destination don't go. The destination itself must be one of the routes', as the
// route writes it.
func (s *settings) others(f claim.ReplayFilter) (func(kind string) ([]string, error), error) {
	if f.Destination == "" {
		return nil, nil
	}
	others := func(kind string) ([]string, error) {
		to := s.router.To(kind)
		if len(to) == 0 {
			return nil, fmt.Errorf("--destination %q: no route matches the kind %q", f.Destination, kind)
		}
		i := slices.Index(to, f.Destination)
		if i < 0 {
			return nil, fmt.Errorf("--destination %q: the route of the kind %q has %s", f.Destination, kind, strings.Join(to, ", "))
		}
		return slices.Delete(to, i, i+1), nil
	}
	if f.Kind != "" {
		_, err := others(f.Kind)
		if err != nil {
			err = usageError{err}
		}
		return others, err
	}
	var all []string
	for _, d := range s.router.Destinations() {
		all = append(all, d.Text)
	}
	if !slices.Contains(all, f.Destination) {
		return nil, usagef("--destination %q: the routes have %s", f.Destination, strings.Join(all, ", "))
	}
	return others, nil
}

// replay runs it and prints what was done, also when it was interrupted.
func (a *app) replay(ctx context.Context, store *claim.Store, r claim.Replay, asJSON bool) error {
	shown := replayBar{to: a.stderr, off: !isTerminal(a.stderr)}
	r.Progress = shown.show
	done, err := store.Replay(ctx, r)
	shown.end()
	begun := err == nil || done.InAll > 0 || errors.Is(err, context.Canceled)
	if begun {
		if printed := a.printReplayed(r, done, err == nil, asJSON); err == nil {
			err = printed
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("replay %s: interrupted; the same command goes on", done.Name)
	case err != nil && begun:
		return fmt.Errorf("%w; what was copied is kept, and the same command goes on", err)
	case err == nil && len(r.Filter.IDs) > 0 && done.Copied+done.InAll+done.Had == 0:
		return errReported
	}
	return err
}
