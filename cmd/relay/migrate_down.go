package main

import (
	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateDownCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "down",
		Short: "Take the newest step back",
		Long:  `Take the newest step back. A step that would lose jobs or values is refused unless --drop-data is given.`,
		Args:  cobra.NoArgs,
	}
	dropData := c.Flags().Bool("drop-data", false, "go on even if jobs or values are lost")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withSchema(migrations.Options{DropData: *dropData}, func(db *pgx.ConnConfig, o migrations.Options) error {
			return migrations.Down(c.Context(), db, o)
		})
	}
	return c
}
