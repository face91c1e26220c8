package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/demo"
	"github.com/spf13/cobra"
)

const demoRate = 50

func demoCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show the relay at work: needs no broker, no database, no settings",
		Long: `Show the relay at work. It starts a private Postgres, or uses a schema relay_demo of its own in the database that
RELAY_DATABASE_URL names, runs a small shop that writes orders and jobs in one transaction (a third roll back), and
relays the jobs to standard output and to every broker whose settings are in the environment (topic, exchange and queue
are called relay-demo). On Ctrl-C, or after --jobs, it drains and prints what was committed, delivered, duplicated and
lost. Exit 0 only if every committed job was delivered. It leaves nothing running.`,
		Args: cobra.NoArgs,
	}
	jobs := c.Flags().Int("jobs", 0, "end after so many committed jobs (default: on Ctrl-C)")
	rate := c.Flags().Int("rate", demoRate, "committed jobs a second, about; 0: as fast as it goes")
	asJSON := jsonFlag(c, "the summary")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *jobs < 0 || c.Flags().Changed("jobs") && *jobs == 0 {
			return usagef("--jobs must be at least 1")
		}
		if *rate < 0 {
			return usagef("--rate must be at least 0")
		}
		d := &demonstration{app: a, jobs: *jobs, rate: *rate, ledger: demo.NewLedger(), asJSON: *asJSON}
		return d.run(c.Context())
	}
	return c
}

// demonstration is the relay as run has it, between a shop and a witness.
type demonstration struct {
	*app
	service
	jobs, rate int
	asJSON     bool
	begun      bool // the shop has opened
	ledger     *demo.Ledger
	screen     *demo.Screen
	notes      io.Writer // standard error, above the progress bar
	database   *demo.Database
}

func (d *demonstration) run(ctx context.Context) error {
	d.screen = demo.NewScreen(d.stderr, d.jobs, isTerminal(d.stderr), isTerminal(d.stdout))
	d.notes = d.screen.Err(d.stderr)
	defer d.screen.End()
	brokers := demo.Brokers(d.env)
	if err := d.settle(brokers); err != nil {
		return err
	}
	err := d.openDatabase(ctx)
	if err == nil {
		err = d.show(ctx, brokers)
		d.screen.End()
		err = errors.Join(err, d.database.Close())
	}
	if ctx.Err() != nil && !d.begun {
		return nil // told to stop before anything was committed, whatever that broke off
	}
	return err
}

// settle reads the settings: those of the environment, but for what the demo decides itself.
func (d *demonstration) settle(brokers []demo.Broker) error {
	env := maps.Clone(d.env)
	to := []string{"stdout:"}
	for _, b := range brokers {
		to = append(to, b.To)
	}
	for _, name := range []string{"ROUTES_FILE", "RETENTION", "MIGRATE", "SINKS"} {
		delete(env, "RELAY_"+name)
	}
	env["RELAY_ROUTES"] = demoRoutes(to)
	env["RELAY_TABLE"] = demo.Table
	if strings.TrimSpace(env["RELAY_SOURCE"]) == "" {
		env["RELAY_SOURCE"] = "demo"
	}
	if strings.TrimSpace(env["RELAY_LOG_LEVEL"]) == "" {
		env["RELAY_LOG_LEVEL"] = "warn" // notes tell what is worth telling
	}
	s, problems, warnings := read(env, config.Need{})
	if len(problems) > 0 {
		return problems
	}
	s.log = (&app{stderr: d.notes}).logger(s.LogLevel, d.logFormat(s.LogFormat))
	for _, w := range warnings {
		s.log.Warn(w)
	}
	s.print(demo.NewWitness(d.ledger, d.screen.Out(d.stdout)))
	d.service = service{settings: s, registry: newRegistry()}
	return nil
}

// demoRoutes sends every kind of the shop everywhere. They are named one by one: a kind that a glob matches is looked for
// once a second, which would be the longest wait of the demo.
func demoRoutes(to []string) string {
	var routes []string
	for _, kind := range demo.Kinds {
		routes = append(routes, fmt.Sprintf(`{kind: %q, to: ["%s"]}`, kind, strings.Join(to, `", "`)))
	}
	return "[" + strings.Join(routes, ", ") + "]"
}

// logFormat: the screen hides from the logger whether it is a terminal.
func (d *demonstration) logFormat(configured string) string {
	if configured == "" && isTerminal(d.stderr) {
		return "text"
	}
	return configured
}

func (d *demonstration) note(format string, args ...any) {
	_, _ = fmt.Fprintf(d.notes, format+"\n", args...)
}

// openDatabase starts a private Postgres, or makes a schema in the given database.
func (d *demonstration) openDatabase(ctx context.Context) (err error) {
	if d.DatabaseURL != "" {
		direct, err := d.direct()
		if err != nil {
			return err
		}
		d.database, err = demo.UseGiven(ctx, string(d.DatabaseURL), func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.ConnectConfig(ctx, direct)
		})
		if err != nil {
			return explain(fmt.Errorf("preparing the database: %w", err))
		}
		d.note("database: the given one, in a schema %s of its own", demo.Schema)
		return nil
	}
	log := slog.New(slog.NewTextHandler(d.notes, nil)) // a first start downloads, which takes a while
	if d.database, err = demo.StartPrivate(ctx, log); err != nil {
		return fmt.Errorf("starting a private Postgres (RELAY_DATABASE_URL can name another): %w", err)
	}
	d.note("database: a private Postgres, removed at the end")
	d.DatabaseURL = config.Secret(d.database.URL)
	d.ListenURL = d.DatabaseURL
	return nil
}
