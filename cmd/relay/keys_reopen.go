package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func keysReopenCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "reopen KEY",
		Short: "Let a closed key go on, with or without its dead job",
		Long: `Let a closed key go on. The dead job that holds it stays dead, and what waits behind it is sent without it; with
--requeue the dead job goes first, with a full new round of attempts; with --discard it is deleted for good.

A key may be closed in several kinds: name one with --kind. Exit 1 when the key isn't closed.`,
		Example: "relay keys reopen order-4711 --requeue",
		Args:    cobra.ExactArgs(1),
	}
	kind := c.Flags().String("kind", "", "the kind, where several have the key closed")
	requeue := c.Flags().Bool("requeue", false, "give the dead job a full new round first")
	discard := c.Flags().Bool("discard", false, "delete the dead job")
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, only count")
	asJSON := jsonFlag(c, "what was done")
	c.MarkFlagsMutuallyExclusive("requeue", "discard")
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed("kind") && *kind == "" {
			return usagef("--kind is empty")
		}
		how, did := claim.LeaveDead, "left dead"
		switch {
		case *requeue:
			how, did = claim.RequeueFirst, "requeued"
		case *discard:
			how, did = claim.DiscardDead, "discarded"
		}
		return a.withStore(c.Context(), func(s *settings, store *claim.Store) error {
			in, err := s.kindOfKey(c.Context(), store, args[0], *kind)
			if err != nil {
				return err
			}
			jobs, err := store.ReopenKey(c.Context(), in, args[0], how, *dryRun)
			if err != nil {
				return notClosed(err, args[0], in)
			}
			return a.printReopened(reopened{in, args[0], jobs, did, *dryRun}, *asJSON)
		})
	}
	return c
}

func notClosed(err error, key, kind string) error {
	if !errors.Is(err, claim.ErrNotClosed) {
		return err
	}
	if kind != "" {
		kind = " in kind " + printable(kind)
	}
	return fmt.Errorf("key %q is not closed%s; relay keys list shows those that are", key, kind)
}

// kindOfKey finds the one kind in which the key is closed.
func (s *settings) kindOfKey(ctx context.Context, store *claim.Store, key, kind string) (string, error) {
	if kind != "" {
		return kind, nil
	}
	kinds, err := s.closedKinds(ctx, store, "")
	if err != nil {
		return "", err
	}
	var in []string
	for _, k := range kinds {
		f := claim.KeyFilter{Kinds: []string{k}, Key: key, HasKey: true, Limit: 1}
		if err := store.ListClosedKeys(ctx, f, func(k claim.ClosedKey) error { in = append(in, k.Kind); return nil }); err != nil {
			return "", err
		}
	}
	switch len(in) {
	case 0:
		return "", notClosed(claim.ErrNotClosed, key, "")
	case 1:
		return in[0], nil
	}
	return "", fmt.Errorf("key %q is closed in %d kinds (%s): name one with --kind", key, len(in), printable(strings.Join(in, ", ")))
}

// reopened is what keys reopen did, as JSON.
type reopened struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Jobs   int    `json:"jobs"` // dead jobs that held the key
	Did    string `json:"did"`  // with them
	DryRun bool   `json:"dry_run"`
}

func (a *app) printReopened(r reopened, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, r)
	}
	mark := ""
	if r.DryRun {
		mark = "dry run: "
	}
	_, err := fmt.Fprintf(a.stdout, "%sreopened key %q of kind %s: dead jobs %s: %d\n", mark, r.Key, printable(r.Kind), r.Did, r.Jobs)
	return err
}
