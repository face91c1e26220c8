package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/config"
	"github.com/spf13/cobra"
)

func deadCommand(a *app) *cobra.Command {
	return group("dead", "List, show, requeue or discard dead jobs",
		deadListCommand(a), deadShowCommand(a), deadRequeueCommand(a), deadDiscardCommand(a))
}

// withStore runs f on the configured table.
func (a *app) withStore(ctx context.Context, f func(s *settings, store *claim.Store) error) error {
	s, err := a.load(config.Need{DatabaseURL: true})
	if err != nil {
		return err
	}
	db, err := pool(ctx, string(s.DatabaseURL), adminConnections)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := s.store(db)
	if err != nil {
		return err
	}
	return explain(f(s, store))
}

// deadFilter is a filter by flags.
type deadFilter struct {
	f            claim.Filter
	since, until timeFlag
	all          bool
}

func (d *deadFilter) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&d.f.Kind, "kind", "", "only this kind")
	flags.StringVar(&d.f.Key, "key", "", "only this key")
	flags.StringVar(&d.f.Error, "error", "", "only jobs whose last error holds this text")
	flags.Var(&d.since, "since", "only jobs that died at or after this time")
	flags.Var(&d.until, "until", "only jobs that died before this time")
	flags.Int64SliceVar(&d.f.IDs, "id", nil, "only this job (may be repeated)")
	flags.IntVar(&d.f.Limit, "limit", 0, "at most so many, those with the lowest ids (0: no limit)")
}

// addAll adds --all, without which a command that changes jobs wants a filter.
func (d *deadFilter) addAll(c *cobra.Command) {
	c.Flags().BoolVar(&d.all, "all", false, "every dead job: needed when there is no filter")
}

// filter checks the flags. An empty text would match everything, which nobody means who writes it.
func (d *deadFilter) filter(c *cobra.Command) (claim.Filter, error) {
	flags := c.Flags()
	for _, name := range []string{"kind", "error"} {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return d.f, usagef("--%s is empty", name)
		}
	}
	if d.f.Limit < 0 || flags.Changed("limit") && d.f.Limit == 0 {
		return d.f, usagef("--limit must be at least 1")
	}
	if flags.Changed("id") && len(d.f.IDs) == 0 {
		return d.f, usagef("--id is empty")
	}
	d.f.HasKey = flags.Changed("key")
	d.f.Since, d.f.Until = d.since.t, d.until.t
	return d.f, nil
}

// choice is filter for commands that change jobs: a filter or --all, neither or both is a mistake.
func (d *deadFilter) choice(c *cobra.Command) (claim.Filter, error) {
	f, err := d.filter(c)
	if err != nil {
		return f, err
	}
	filtered := false
	for _, name := range []string{"kind", "key", "error", "since", "until", "id"} {
		filtered = filtered || c.Flags().Changed(name)
	}
	if filtered == d.all {
		return f, usagef("%s wants a filter (--kind, --key, --error, --since, --until, --id) or --all, and not both", c.CommandPath())
	}
	return f, nil
}

// deadJob is a dead job as JSON.
type deadJob struct {
	ID          int64      `json:"id"`
	Kind        string     `json:"kind"`
	Key         *string    `json:"key"`
	Attempts    int        `json:"attempts"`
	MaxAttempts int        `json:"max_attempts"`
	LastError   string     `json:"last_error"`
	CreatedAt   *time.Time `json:"created_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Delivered   []string   `json:"delivered"`
}

func newDeadJob(d claim.DeadJob) deadJob {
	j := deadJob{
		ID: d.ID, Kind: d.Kind, Key: d.Key, Attempts: d.Attempts, MaxAttempts: d.MaxAttempts, LastError: d.LastError,
		CreatedAt: utc(d.CreatedAt), FinishedAt: utc(d.FinishedAt), Delivered: d.Delivered,
	}
	if j.Delivered == nil {
		j.Delivered = []string{}
	}
	return j
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// key writes a job's key for people.
func key(k *string) string {
	if k == nil {
		return "-"
	}
	return fmt.Sprintf("%q", *k)
}
