package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateStatusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "List the steps and when they were applied",
		Args:  cobra.NoArgs,
	}
	asJSON := jsonFlag(c, "an object per step")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withSchema(migrations.Options{}, func(db *pgx.ConnConfig, o migrations.Options) error {
			steps, err := migrations.Status(c.Context(), db, o)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printSteps(steps)
			}
			t := table(a.stdout)
			for _, s := range steps {
				at := "pending"
				if !s.AppliedAt.IsZero() {
					at = printTime(s.AppliedAt)
				}
				_, _ = fmt.Fprintf(t, "%d\t%s\t%s\n", s.Version, s.Name, at)
			}
			return t.Flush()
		})
	}
	return c
}

func (a *app) printSteps(steps []migrations.Step) error {
	for _, s := range steps {
		err := printJSON(a.stdout, struct {
			Version   int64      `json:"version"`
			Name      string     `json:"name"`
			AppliedAt *time.Time `json:"applied_at"` // null: pending
		}{s.Version, s.Name, utc(s.AppliedAt)})
		if err != nil {
			return err
		}
	}
	return nil
}
