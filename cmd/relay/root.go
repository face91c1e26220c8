package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `relay moves jobs that an application enqueued in Postgres, in the transaction of its business data, to Kafka,
RabbitMQ and SQS. It is configured by RELAY_ variables; docs/configuration.md lists them.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 it failed, 2 usage or
configuration.`

// newRoot builds the command tree.
func newRoot(a *app) *cobra.Command {
	root := group("relay", "Transactional outbox relay: Postgres to Kafka, RabbitMQ and SQS",
		runCommand(a), demoCommand(a), migrateCommand(a), enqueueCommand(a), statusCommand(a), checkCommand(a),
		deadCommand(a), keysCommand(a), replayCommand(a), kindsCommand(a), healthCommand(a), versionCommand(a))
	root.Long = rootLong
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	markStart(a, root)
	return root
}

// group makes a command that only holds others. Without one of them it's a mistake, not a question for help.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name())
	}
	g := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return usagef("%s wants a command: %s", c.CommandPath(), strings.Join(names, ", "))
	}}
	g.AddCommand(commands...)
	return g
}

// markStart notes when a command's own code begins: errors before that are the command line's.
func markStart(a *app, c *cobra.Command) {
	if body := c.RunE; body != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started = true
			return body(c, args)
		}
	}
	for _, sub := range c.Commands() {
		markStart(a, sub)
	}
}

// jsonFlag adds --json.
func jsonFlag(c *cobra.Command, what string) *bool {
	return c.Flags().Bool("json", false, fmt.Sprintf("print %s as JSON", what))
}
