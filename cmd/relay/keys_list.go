package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func keysListCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List closed keys: kind, key, the dead job that holds it, since when, what waits, last error",
		Long: `List closed keys, a line for each dead job that holds one: kind, key, job, since when, how many jobs of the key wait
(counting stops at 1,000), last error. With routes in the environment only kinds are listed whose route says order: key
and dead: close; without them all kinds, also those for which it means nothing.`,
		Args: cobra.NoArgs,
	}
	var f claim.KeyFilter
	kind := c.Flags().String("kind", "", "only this kind")
	c.Flags().StringVar(&f.Key, "key", "", "only this key")
	c.Flags().IntVar(&f.Limit, "limit", 0, "at most so many (0: no limit)")
	asJSON := jsonFlag(c, "an object per closed key")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("kind") && *kind == "" {
			return usagef("--kind is empty")
		}
		if f.Limit < 0 || c.Flags().Changed("limit") && f.Limit == 0 {
			return usagef("--limit must be at least 1")
		}
		f.HasKey = c.Flags().Changed("key")
		return a.withStore(c.Context(), func(s *settings, store *claim.Store) (err error) {
			if f.Kinds, err = s.closedKinds(c.Context(), store, *kind); err != nil || len(f.Kinds) == 0 {
				return err
			}
			out := bufio.NewWriter(a.stdout)
			err = store.ListClosedKeys(c.Context(), f, func(k claim.ClosedKey) error {
				if *asJSON {
					return printJSON(out, newClosedKey(k))
				}
				waiting := fmt.Sprint(k.Waiting)
				if k.Waiting == claim.WaitingLimit {
					waiting += "+"
				}
				_, err := fmt.Fprintf(out, "%-20s  %-16s  %-8d  %-20s  %5s  %s\n", printable(k.Kind), key(&k.Key), k.Job,
					printTime(k.ClosedAt), waiting, printable(k.LastError))
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

// closedKinds are the kinds whose closed keys matter: the one that is asked for, or those whose routes close keys.
func (s *settings) closedKinds(ctx context.Context, store *claim.Store, kind string) ([]string, error) {
	if kind != "" {
		return []string{kind}, nil
	}
	kinds, err := store.ClosedKinds(ctx)
	return slices.DeleteFunc(kinds, func(k string) bool { return !s.closes(k) }), err
}

// closedKey is a closed key as JSON.
type closedKey struct {
	Kind      string     `json:"kind"`
	Key       string     `json:"key"`
	Job       int64      `json:"job"`
	ClosedAt  *time.Time `json:"closed_at"`
	Attempts  int        `json:"attempts"`
	Waiting   int        `json:"waiting"`
	LastError string     `json:"last_error"`
}

func newClosedKey(k claim.ClosedKey) closedKey {
	return closedKey{Kind: k.Kind, Key: k.Key, Job: k.Job, ClosedAt: utc(k.ClosedAt), Attempts: k.Attempts, Waiting: k.Waiting, LastError: k.LastError}
}
