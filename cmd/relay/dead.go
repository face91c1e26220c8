package main

import (
	"context"
	"fmt"
	"strings"
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
	return a.withStoreOf(ctx, s, f)
}

// withStoreOf is withStore for settings that were read already.
func (a *app) withStoreOf(ctx context.Context, s *settings, f func(s *settings, store *claim.Store) error) error {
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

// jobFilter is a filter by flags, of dead jobs or of done ones.
type jobFilter struct {
	f            claim.Filter
	since, until timeFlag
	all          bool
}

// filterFlags are those that choose jobs; --error only dead ones.
var filterFlags = []string{"kind", "key", "error", "since", "until", "id"}

// add adds the flags that all filters have; ended says what the jobs did at the time that the filter is about.
func (d *jobFilter) add(c *cobra.Command, ended string) {
	flags := c.Flags()
	flags.StringVar(&d.f.Kind, "kind", "", "only this kind")
	flags.StringVar(&d.f.Key, "key", "", "only this key")
	flags.Var(&d.since, "since", "only jobs that "+ended+" at or after this time")
	flags.Var(&d.until, "until", "only jobs that "+ended+" before this time")
	flags.Int64SliceVar(&d.f.IDs, "id", nil, "only this job (may be repeated)")
	flags.IntVar(&d.f.Limit, "limit", 0, "at most so many, those with the lowest ids (0: no limit)")
}

// addDead adds the flags of a filter of dead jobs.
func (d *jobFilter) addDead(c *cobra.Command) {
	d.add(c, "died")
	c.Flags().StringVar(&d.f.Error, "error", "", "only jobs whose last error holds this text")
}

// addAll adds --all, without which a command that changes jobs wants a filter.
func (d *jobFilter) addAll(c *cobra.Command, what string) {
	c.Flags().BoolVar(&d.all, "all", false, "every "+what+" job: needed when there is no filter")
}

// filter checks the flags. An empty text would match everything, which nobody means who writes it.
func (d *jobFilter) filter(c *cobra.Command) (claim.Filter, error) {
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
	if !d.since.t.IsZero() && !d.until.t.IsZero() && !d.since.t.Before(d.until.t) {
		return d.f, usagef("--since must be before --until")
	}
	d.f.HasKey = flags.Changed("key")
	d.f.Since, d.f.Until = d.since.t, d.until.t
	return d.f, nil
}

// choice is filter for commands that change jobs: a filter or --all, neither or both is a mistake.
func (d *jobFilter) choice(c *cobra.Command) (claim.Filter, error) {
	f, err := d.filter(c)
	if err != nil {
		return f, err
	}
	filtered, names := false, []string{}
	for _, name := range filterFlags {
		if c.Flags().Lookup(name) != nil {
			filtered, names = filtered || c.Flags().Changed(name), append(names, "--"+name)
		}
	}
	if filtered == d.all {
		return f, usagef("%s wants a filter (%s) or --all, and not both", c.CommandPath(), strings.Join(names, ", "))
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
	ReplayOf    *int64     `json:"replay_of"`
}

func newDeadJob(d claim.DeadJob) deadJob {
	j := deadJob{
		ID: d.ID, Kind: d.Kind, Key: d.Key, Attempts: d.Attempts, MaxAttempts: d.MaxAttempts, LastError: d.LastError,
		CreatedAt: utc(d.CreatedAt), FinishedAt: utc(d.FinishedAt), Delivered: d.Delivered,
		ReplayOf: d.ReplayOf,
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
