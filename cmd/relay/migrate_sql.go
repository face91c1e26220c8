package main

import (
	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateSQLCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print what up would run on this database, and run nothing",
		Args:  cobra.NoArgs,
	}
	var flags shape
	flags.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		o, err := flags.options(c)
		if err != nil {
			return err
		}
		return a.withSchema(o, func(db *pgx.ConnConfig, o migrations.Options) error {
			return migrations.SQL(c.Context(), db, o, a.stdout)
		})
	}
	return c
}
