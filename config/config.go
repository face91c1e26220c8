package config

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what the relay reads from RELAY_ variables, but for the settings of the sinks.
type Config struct {
	DatabaseURL         Secret `env:"DATABASE_URL" secret:"true" shown:"required" rule:"a Postgres URL such as postgres://user:password@host:5432/database" help:"Postgres, by any URL or keyword string that pgx takes. It works as it is through a transaction-mode pooler."`
	DatabaseConnections int    `env:"DATABASE_CONNECTIONS" default:"10" range:"2..1000" help:"Connections for claiming and settling. A worker holds one only during a statement. One more is opened for LISTEN, two for the admin server."`
	// ListenURL is DatabaseURL unless it's set; "" (written off) means polling only.
	ListenURL Secret `env:"LISTEN_URL" secret:"true" zero:"off" shown:"as DATABASE_URL" rule:"a Postgres URL" help:"A direct connection for LISTEN and migrations, needed when DATABASE_URL leads through a transaction-mode pooler. off: polling only."`
	Table     string `env:"TABLE" default:"jobs" match:"^([!#-\\-/-~]{1,63}\\.)?[!#-\\-/-~]{1,50}$" rule:"a table, or schema.table, in up to 50 (schema: 63) printable ASCII characters without space, dot and quote" help:"The jobs table. It may name a schema; then the relay's own tables and functions live there too. Letters are meant as they are, upper case too."`
	// Source is "" unless it's set: the database's name, to be asked of the server.
	Source string `env:"SOURCE" shown:"database name" match:"^[!-.0-~]{1,100}$" rule:"up to 100 printable ASCII characters without space and slash" help:"First half of the message id SOURCE/ID. Choose it when several databases feed the same broker under one database name."`

	Workers        int           `env:"WORKERS" default:"4" range:"1..256" help:"Batches in flight per lane. A lane is the set of workers for the routes that lead to the same sinks."`
	BatchSize      int           `env:"BATCH_SIZE" default:"500" range:"1..10000" help:"Most jobs that one claim takes."`
	BatchBytes     int64         `env:"BATCH_BYTES" unit:"bytes" default:"8MiB" range:"1KiB..1GiB" help:"Most bytes that one claim takes; a larger job comes alone. Memory stays below this × workers × 2 plus the largest job."`
	Lease          time.Duration `env:"LEASE" default:"1m" range:"1s..24h" help:"How long a claimed job is nobody else's. Renewed while its batch is in flight, so it bounds how long the jobs of a killed process wait."`
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT" default:"20s" range:"100ms..1h" help:"Bound of publishing one batch. Less than LEASE."`
	PollMin        time.Duration `env:"POLL_MIN" default:"5ms" range:"1ms..1m" help:"Pause before the next claim after there was work."`
	PollMax        time.Duration `env:"POLL_MAX" default:"1s" range:"1ms..10m" help:"Longest pause when idle: a job that no notification announces waits so long at most."`
	RetryBase      time.Duration `env:"RETRY_BASE" default:"10s" range:"1ms..24h" help:"A failed job waits min(2^attempts × RETRY_BASE, RETRY_MAX), ±20 %; the first failure 2 × RETRY_BASE."`
	RetryMax       time.Duration `env:"RETRY_MAX" default:"1h" range:"1ms..720h" help:"Longest wait between two tries. At least RETRY_BASE. For an SQS FIFO queue choose 60s: it forgets deduplication ids after five minutes."`
	Retention      time.Duration `env:"RETENTION" default:"24h" range:"0s..87600h" help:"How long done jobs are kept, for replay and questions. 0: they are deleted as they settle, the fastest mode."`
	RetentionDead  time.Duration `env:"RETENTION_DEAD" default:"never" zero:"never" range:"1s..87600h" help:"When dead jobs are deleted, counted from their death. never: they are kept. One that holds its key closed is kept until somebody decides."`
	DrainTimeout   time.Duration `env:"DRAIN_TIMEOUT" default:"25s" range:"100ms..1h" help:"How long work in flight may take to end at shutdown. Keep it below the platform's own grace period."`
	Migrate        bool          `env:"MIGRATE" default:"false" help:"Whether run migrates the schema before it starts."`

	// AdminAddr is "" when it's off.
	AdminAddr string     `env:"ADMIN_ADDR" default:"127.0.0.1:8321" zero:"off" rule:"host:port or :port" help:"Where health, metrics and the page are served. off: nowhere."`
	LogLevel  slog.Level `env:"LOG_LEVEL" default:"info" range:"debug|info|warn|error" help:"Least important level that is logged."`
	// LogFormat is "" unless it's set: text on a terminal, else json.
	LogFormat string `env:"LOG_FORMAT" range:"json|text" shown:"json, on a terminal text" help:"Form of the log lines."`

	// Sinks are the named ones of RELAY_SINKS, without those that exist under their type's name.
	Sinks []SinkName `env:"SINKS" shown:"those that routes name" rule:"a list name:type,… whose names are lower-case letters, digits, - and _" help:"Several clusters of one type: kafka-eu:kafka,kafka-us:kafka. The settings of kafka-eu are then RELAY_KAFKA_EU_…"`

	Routes []Route
}

// Need says which settings a command can't do without.
type Need struct{ DatabaseURL, Routes bool }

// Load reads the settings. It returns all problems at once; the Config is good only if there are none. Warnings are
// lines for people. Routes are read where they are set, also when they aren't needed.
func Load(env Environ, need Need) (cfg *Config, problems Problems, warnings []string) {
	cfg = &Config{}
	problems = Decode(env, prefix, cfg)
	problems = append(problems, cfg.databases(env, need)...)
	problems = append(problems, checkSinkNames(cfg.Sinks)...)
	routes, bad := loadRoutes(env, need.Routes)
	cfg.Routes = routes
	problems = append(problems, bad...)
	problems = append(problems, cfg.relations(problems)...)
	if cfg.DrainTimeout < cfg.PublishTimeout && len(problems) == 0 {
		warnings = append(warnings, "RELAY_DRAIN_TIMEOUT ("+short(cfg.DrainTimeout)+") is less than RELAY_PUBLISH_TIMEOUT ("+
			short(cfg.PublishTimeout)+"): a shutdown may abandon messages in flight, which are then sent again")
	}
	return cfg, problems, warnings
}

// databases checks the two database URLs and fills in the second.
func (c *Config) databases(env Environ, need Need) Problems {
	var found Problems
	check := func(name string, value Secret) {
		if why := databaseFault(string(value)); value != "" && why != "" {
			found = append(found, problemHidden(sourceOf(env, name), "%s (its value is secret and isn't shown)", why))
		}
	}
	_, set := env.get("RELAY_LISTEN_URL")
	_, inFile := env.get("RELAY_LISTEN_URL_FILE")
	check("RELAY_DATABASE_URL", c.DatabaseURL)
	check("RELAY_LISTEN_URL", c.ListenURL)
	if !set && !inFile {
		c.ListenURL = c.DatabaseURL
	}
	_, inFile = env.get("RELAY_DATABASE_URL_FILE")
	if c.DatabaseURL == "" && !inFile && need.DatabaseURL {
		found = append(found, problemHidden("RELAY_DATABASE_URL", "is required: a Postgres URL such as postgres://user:password@host:5432/database"))
	}
	return found
}

// sourceOf names the variable that a secret came from.
func sourceOf(env Environ, name string) string {
	if _, ok := env.get(name + "_FILE"); ok {
		return name + "_FILE"
	}
	return name
}

// databaseFault says what is wrong with a database URL, in words that hold nothing of it: the client's own error
// may repeat a password whose special characters were not encoded.
func databaseFault(url string) string {
	_, err := pgxpool.ParseConfig(url)
	if err == nil {
		return ""
	}
	const form = "isn't a Postgres URL (postgres://user:password@host:5432/database) or keyword string"
	for _, known := range []struct{ sign, say string }{
		{"invalid port", form + ": the port must be a number from 1 to 65535, and special characters of a password percent-encoded (%2F is a slash)"},
		{"configure TLS", "has TLS settings that don't work: check sslmode and the files that sslrootcert, sslcert and sslkey name"},
		{"port numbers to", "names several hosts, and another number of ports"},
		{"connect_timeout", "has a connect_timeout that isn't a number of seconds"},
		{"target_session_attrs", "has a target_session_attrs that doesn't exist"},
		{"pool_", "has a pool_ setting that isn't a valid number or duration"},
		{"service", "names a service that can't be read"},
	} {
		if strings.Contains(err.Error(), known.sign) {
			return known.say
		}
	}
	return form + "; special characters of a password must be percent-encoded (%2F is a slash)"
}

// relations checks what two settings must be to each other, unless one of them is wrong by itself already.
func (c *Config) relations(already Problems) Problems {
	bad := map[string]bool{}
	for _, p := range already {
		bad[p.Name] = true
	}
	var found Problems
	check := func(ok bool, name string, value time.Duration, rule, other string, than time.Duration) {
		if !ok && !bad[name] && !bad[other] {
			found = append(found, problem(name, short(value), "must be %s %s (%s)", rule, other, short(than)))
		}
	}
	check(c.Lease > c.PublishTimeout, "RELAY_LEASE", c.Lease, "longer than", "RELAY_PUBLISH_TIMEOUT", c.PublishTimeout)
	check(c.RetryMax >= c.RetryBase, "RELAY_RETRY_MAX", c.RetryMax, "at least", "RELAY_RETRY_BASE", c.RetryBase)
	check(c.PollMax >= c.PollMin, "RELAY_POLL_MAX", c.PollMax, "at least", "RELAY_POLL_MIN", c.PollMin)
	if !bad["RELAY_ADMIN_ADDR"] && c.AdminAddr != "" && !listenable(c.AdminAddr) {
		found = append(found, problem("RELAY_ADMIN_ADDR", c.AdminAddr, "must be off, host:port or :port, with a port from 0 to 65535"))
	}
	return found
}

func listenable(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// short writes a duration without the zero units that Go appends: 1m, not 1m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// variables returns the name of every setting in Config, for those who must keep clear of them.
func variables() []string {
	var names []string
	for _, f := range fields(prefix, Config{}) {
		names = append(names, f.name)
	}
	return append(names, "RELAY_ROUTES", "RELAY_ROUTES_FILE")
}
