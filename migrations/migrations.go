package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
)

// Options say which table, and how.
type Options struct {
	// Table names the table of jobs, as "table" or "schema.table"; the names are taken as they are, without folding to
	// lower case, and one that holds a dot is put in double quotes. Without a schema the search_path decides. All else
	// (helper tables, functions, bookkeeping) lives in the table's schema. At most 50 bytes. Default "jobs".
	Table string
	// WithoutOrder leaves out the index that per-key order needs: 107 bytes of WAL less for each job with a key. A later
	// Up without it builds the index. Default false.
	WithoutOrder bool
	// FillFactor is how full, in per cent, pages are filled by inserts, 10 to 100. 0 leaves a table as it is that has a
	// fillfactor already. Default 30.
	FillFactor int
	// DropData lets Down drop rows and values. Default false.
	DropData bool
	// Log gets progress and whom it waits for. Default: discarded.
	Log *slog.Logger
}

func (o Options) parse() (names, error) {
	if o.Table == "" {
		o.Table = "jobs"
	}
	if o.FillFactor != 0 && (o.FillFactor < 10 || o.FillFactor > 100) {
		return names{}, fmt.Errorf("fillfactor %d: must be 10 to 100", o.FillFactor)
	}
	return parseTable(o.Table)
}

// Up brings the table and all beside it to this version: it creates what is missing, or adopts a table that exists,
// while that table's workers go on. It is idempotent, goes on where an interrupted one stopped, and holds an advisory
// lock: of two at once the second waits and finds nothing to do.
func Up(ctx context.Context, db *pgx.ConnConfig, o Options) error {
	return run(ctx, db, o, "migrate up", func(ctx context.Context, m *migrator) error { return m.up(ctx) })
}

// Down undoes the newest step: rows stay, and so does an adopted table. A step that would lose rows, or values that an
// application wrote, is refused with ErrWouldLoseData unless DropData is set. With nothing to undo it does nothing.
// Unlike Up it may hold the table while it looks through it.
func Down(ctx context.Context, db *pgx.ConnConfig, o Options) error {
	return run(ctx, db, o, "migrate down", func(ctx context.Context, m *migrator) error { return m.down(ctx) })
}

// Retire drops the two indexes of the old design, <table>_ready_idx and <table>_running_idx, without stopping anybody's
// work. It is for the day when the last old worker has gone; claims then touch no index any more.
func Retire(ctx context.Context, db *pgx.ConnConfig, o Options) error {
	return run(ctx, db, o, "migrate retire", func(ctx context.Context, m *migrator) error { return m.retire(ctx) })
}

// migrator is one command on one table, under the lock.
type migrator struct {
	*session
	state
	options Options
}

// run finds the table, takes the lock, looks at what there is, and does one command.
func run(ctx context.Context, cfg *pgx.ConnConfig, o Options, what string, do func(context.Context, *migrator) error) error {
	n, err := o.parse()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s, err := open(ctx, cfg, o.Log)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.close()
	if n, err = resolve(ctx, s.db, n); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = s.locked(ctx, n, func(ctx context.Context) error {
		m := &migrator{session: s, options: o}
		if m.state, err = inspect(ctx, s.db, n); err != nil {
			return err
		}
		return do(ctx, m)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (m *migrator) up(ctx context.Context) error {
	if err := m.tooNew(); err != nil || m.version() > latest {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	p, err := m.provider(m.view(m.options))
	if err != nil {
		return err
	}
	for {
		next := stepNames[m.version()+1]
		var done bool
		err := m.patiently(ctx, m.names, "step "+next, func(ctx context.Context) error {
			r, err := p.UpByOne(ctx)
			if done = errors.Is(err, goose.ErrNoNextVersion); done {
				return nil
			}
			if err != nil {
				return explain(err)
			}
			m.log.Info("step applied", "version", r.Source.Version, "step", stepNames[r.Source.Version], "seconds", r.Duration.Seconds())
			m.applied = append(m.applied, record{version: r.Source.Version})
			return nil
		})
		if err != nil {
			return fmt.Errorf("step %d %s: %w", m.version()+1, next, err)
		}
		if done {
			return m.choices(ctx)
		}
	}
}

// ready makes sure that the steps can succeed, before anything changes.
func (m *migrator) ready(ctx context.Context) error {
	if !m.exists && m.version() > 0 {
		return fmt.Errorf("%w: table %s is gone but %s says that it was migrated: restore it, or drop the relay_… tables and functions of the schema too",
			ErrNotMigrated, m.names, m.in(bookkeepingTable))
	}
	if err := m.acceptable(ctx); err != nil {
		return err
	}
	if m.exists && m.version() < 3 {
		if err := m.refuseBy(ctx, ErrNotAdoptable, m.rehearse); err != nil {
			return err
		}
	}
	if !m.schemaExists {
		if _, err := m.db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+quote(m.schema)); err != nil {
			return fmt.Errorf("create schema %s: %w", m.schema, err)
		}
	}
	return nil
}

// provider is goose with the steps as this table needs them.
func (m *migrator) provider(v view) (*goose.Provider, error) {
	steps, err := v.steps()
	if err != nil {
		return nil, err
	}
	build := goose.NewGoMigration(indexStep,
		&goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error { return m.buildIndexes(ctx, v, indexes...) }},
		&goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error {
			return m.dropIndexes(ctx, append(slices.Clone(indexes), orderIndex)...)
		}})
	return goose.NewProvider(goose.DialectCustom, m.db, steps, goose.WithStore(newStore(m.state, v)),
		goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(build), goose.WithLogger(goose.NopLogger()))
}

// choices brings what is no step but an option to what the caller wants now, and puts indexes right that were dropped or
// left half built.
func (m *migrator) choices(ctx context.Context) error {
	// The others too: the step that built them is long done when somebody has dropped one.
	if err := m.buildIndexes(ctx, m.view(m.options), m.wanted()...); err != nil {
		return err
	}
	if m.options.FillFactor == 0 {
		return nil
	}
	return m.patiently(ctx, m.names, "set the fillfactor", func(ctx context.Context) error {
		_, err := m.db.ExecContext(ctx, fmt.Sprintf(`ALTER TABLE %s SET (fillfactor = %d)`, m.quoted(), m.options.FillFactor))
		return err
	})
}

func (m *migrator) down(ctx context.Context) error {
	if m.version() > latest {
		return fmt.Errorf("%w: %s is at version %d, this relay knows %d: step down with the relay that stepped up", ErrTooNew, m.names, m.version(), latest)
	}
	if m.version() == 0 {
		return nil
	}
	v := m.view(m.options)
	if err := m.keepNullable(ctx, &v); err != nil {
		return err
	}
	p, err := m.provider(v)
	if err != nil {
		return err
	}
	err = m.patiently(ctx, m.names, "step "+stepNames[m.version()], func(ctx context.Context) error {
		_, err := p.Down(ctx)
		return explain(err)
	})
	if err != nil {
		return fmt.Errorf("step %d %s: %w", m.version(), stepNames[m.version()], err)
	}
	if m.version() > 1 {
		return nil
	}
	if _, err := m.db.ExecContext(ctx, `DROP TABLE `+m.in(bookkeepingTable)); err != nil {
		return fmt.Errorf("drop %s: %w", bookkeepingTable, err)
	}
	return nil
}

// keepNullable leaves payload nullable on the way down where jobs lose their body: they stay, without either.
func (m *migrator) keepNullable(ctx context.Context, v *view) error {
	if m.version() != 3 || v.PayloadNullable || !m.options.DropData {
		return nil
	}
	err := m.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM `+m.quoted()+` WHERE payload IS NULL)`).Scan(&v.PayloadNullable)
	if err != nil {
		return fmt.Errorf("look for jobs without a payload: %w", err)
	}
	return nil
}

func (m *migrator) retire(ctx context.Context) error {
	if m.version() < latest {
		return fmt.Errorf("%w: %s is at version %d of %d: run `relay migrate up` first", ErrNotMigrated, m.names, m.version(), latest)
	}
	var leases int64
	err := m.db.QueryRowContext(ctx, `SELECT count(*) FROM `+m.quoted()+` WHERE status = 'running' AND lease_token IS NULL AND leased_until > now()`).Scan(&leases)
	if err != nil {
		return fmt.Errorf("look for old workers: %w", err)
	}
	if leases > 0 {
		m.log.Warn("old workers still hold leases; without their indexes they read the whole table", "leases", leases)
	}
	return m.dropIndexes(ctx, "ready", "running")
}

// explain takes goose's wrapping off and gives our own refusals their sentinel and remedy.
func explain(err error) error {
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		err = partial.Err
	}
	if sqlState(err) == wouldLoseData {
		return fmt.Errorf("%w: %w; --drop-data does it all the same", ErrWouldLoseData, err)
	}
	return err
}
