package main

import (
	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateRetireCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "retire",
		Short: "Drop the old indexes of an adopted table, once its old workers have gone",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withSchema(migrations.Options{}, func(db *pgx.ConnConfig, o migrations.Options) error {
				return migrations.Retire(c.Context(), db, o)
			})
		},
	}
}
