package main

import (
	"fmt"

	"github.com/jobrelay/relay/internal/version"
	"github.com/spf13/cobra"
)

func versionCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	asJSON := jsonFlag(c, "the version")
	c.RunE = func(*cobra.Command, []string) error {
		info := version.Get()
		if *asJSON {
			return printJSON(a.stdout, info)
		}
		_, err := fmt.Fprintln(a.stdout, info)
		return err
	}
	return c
}
