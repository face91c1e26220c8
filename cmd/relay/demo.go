package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	env["RELAY_ROUTES"] = fmt.Sprintf(`[{kind: "order.*", to: ["%s"]}]`, strings.Join(to, `", "`))
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

// show runs relay and shop until the end, and prints the summary.
func (d *demonstration) show(ctx context.Context, brokers []demo.Broker) error {
	if err := d.migrateUp(ctx); err != nil {
		return err
	}
	for _, b := range brokers {
		if err := b.Create(ctx, d.env); err != nil {
			return err
		}
		d.note("broker: %s", b.To)
	}
	if err := d.open(ctx); err != nil {
		return err
	}
	defer d.close()
	closeAdmin, err := d.openPage()
	if err != nil {
		return err
	}
	defer closeAdmin()
	shopDB, err := pool(context.WithoutCancel(ctx), string(d.DatabaseURL), demoConnections)
	if err != nil {
		return err
	}
	defer closePools(shopDB)
	d.begun = true
	failed := d.relayShop(ctx, shopDB)
	return d.conclude(shopDB, failed)
}

const demoConnections = 5

// openPage serves the admin page, on a free port when the usual one is taken.
func (d *demonstration) openPage() (closeAdmin func(), err error) {
	if d.AdminAddr == "" {
		return func() {}, nil
	}
	ln, err := listenAdmin(d.AdminAddr)
	if err != nil {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	d.note("page: http://%s/", ln.Addr())
	return d.serve(ln), nil
}

// relayShop runs the relay until the shop has closed and everything is delivered, then drains it.
func (d *demonstration) relayShop(ctx context.Context, shopDB *pgxpool.Pool) error {
	relayCtx, drain := context.WithCancel(context.WithoutCancel(ctx))
	relayed := make(chan error, 1)
	go func() { relayed <- d.relayUntil(relayCtx, d.abandon) }()

	shopCtx, closeShop := context.WithCancel(ctx)
	defer closeShop()
	stopShowing := d.showProgress()
	defer stopShowing()
	shopped := make(chan error, 1)
	go func() {
		d.untilReady(shopCtx)
		err := demo.Shop{DB: shopDB, Ledger: d.ledger, Jobs: d.jobs, Rate: d.rate}.Run(shopCtx)
		if err == nil {
			d.ledger.Wait(d.abandon, shopDB)
		}
		shopped <- err
	}()
	select {
	case err := <-shopped:
		drain()
		return errors.Join(err, <-relayed)
	case err := <-relayed: // it failed: nothing would be delivered any more
		closeShop()
		drain()
		if err == nil {
			err = errors.New("the relay ended early")
		}
		return err
	}
}

// untilReady waits for the relay, so that the first jobs' latency isn't that of its start.
func (d *demonstration) untilReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	for !d.stage.health().Ready() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// showProgress moves the bar until it is told to stop.
func (d *demonstration) showProgress() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			d.screen.Show(d.ledger.Progress())
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(quit); <-ended; d.screen.End() }
}

// conclude prints the summary.
func (d *demonstration) conclude(db *pgxpool.Pool, failed error) error {
	ctx, cancel := context.WithTimeout(context.Background(), questionTimeout)
	defer cancel()
	unsettled, err := demo.Unsettled(ctx, db)
	if failed == nil && err != nil {
		failed = err
	}
	summary := d.ledger.Summary(unsettled)
	if d.asJSON {
		err = printJSON(d.stdout, summary)
	} else {
		err = summary.Write(d.stderr)
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case !summary.Good():
		return fmt.Errorf("%d of %d committed jobs were not delivered, %d were that did not commit", summary.Lost, summary.Committed, summary.Phantoms)
	}
	return nil
}
