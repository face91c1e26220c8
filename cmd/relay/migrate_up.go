package main

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateUpCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Create the table, or adopt the one that is there, and bring it to this version",
		Long: `Create the table of jobs and all beside it, or adopt a table that is in use, while its workers go on. Running it
again does nothing; of two at once the second waits.`,
		Args: cobra.NoArgs,
	}
	var flags shape
	flags.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		o, err := flags.options(c)
		if err != nil {
			return err
		}
		return a.withSchema(o, func(db *pgx.ConnConfig, o migrations.Options) error {
			if err := migrations.Up(c.Context(), db, o); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "table %s is up to date\n", o.Table)
			return err
		})
	}
	return c
}
