package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/migrations"
	"github.com/spf13/cobra"
)

func migrateCommand(a *app) *cobra.Command {
	return group("migrate", "Create, adopt or change the table of jobs",
		migrateUpCommand(a), migrateStatusCommand(a), migrateDownCommand(a), migrateSQLCommand(a), migrateRetireCommand(a))
}

// shape are the flags of what `up` and `sql` make.
type shape struct{ o migrations.Options }

func (f *shape) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.o.WithoutOrder, "without-order", false, "leave out the index that per-key order needs")
	c.Flags().IntVar(&f.o.FillFactor, "fillfactor", 0, "how full pages are filled, 10 to 100 (default 30; 50 suits RELAY_RETENTION=0)")
}

func (f *shape) options(c *cobra.Command) (migrations.Options, error) {
	if c.Flags().Changed("fillfactor") && (f.o.FillFactor < 10 || f.o.FillFactor > 100) {
		return f.o, usagef("--fillfactor %d: must be 10 to 100", f.o.FillFactor)
	}
	return f.o, nil
}

// withSchema runs f with a direct connection's settings and the options completed from the environment.
func (a *app) withSchema(o migrations.Options, f func(c *pgx.ConnConfig, o migrations.Options) error) error {
	s, err := a.load(config.Need{DatabaseURL: true})
	if err != nil {
		return err
	}
	c, err := s.direct()
	if err != nil {
		return err
	}
	o.Table, o.Log = s.Table, s.log
	return explain(f(c, o))
}

// direct is the connection for migrations: that of LISTEN, as neither works through a transaction-mode pooler.
func (s *settings) direct() (*pgx.ConnConfig, error) {
	url := string(s.ListenURL)
	if url == "" {
		url = string(s.DatabaseURL)
	}
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL can't be read")
	}
	tune(c, url)
	return c, nil
}

// migrateUp is what RELAY_MIGRATE=true does.
func (s *settings) migrateUp(ctx context.Context) error {
	c, err := s.direct()
	if err != nil {
		return err
	}
	return migrations.Up(ctx, c, migrations.Options{Table: s.Table, Log: s.log})
}
