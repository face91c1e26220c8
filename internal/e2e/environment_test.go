package e2e

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// relays has a whole relay work through an environment: every job arrives once, at the first attempt, and TERM drains. It
// returns all that the relay wrote, once that holds says.
func relays(t *testing.T, db *testdb.DB, o outlet, env settings, says string) string {
	t.Helper()
	p := start(t, db, o.settings.with(settings{"ROUTES": routes("r", []string{o.to})}).with(env))
	s := newShop(t, db)
	s.trade(300, "r")
	s.drained(generous)
	if n := s.arrived(o, "r"); n != 0 {
		t.Errorf("%d duplicates", n)
	}
	if got := s.attempts(); !slices.Equal(got, []int{1}) {
		t.Errorf("attempts: got %v, want all 1", got)
	}
	eventually(t, "it says "+says, func() error {
		if !strings.Contains(p.output(), says) {
			return errors.New("not yet")
		}
		return nil
	})
	if code := p.terminate(generous); code != 0 {
		t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
	return p.output()
}

// through is the same schema by another URL: what the relay and its commands are given.
func through(db *testdb.DB, url string) *testdb.DB {
	other := *db
	other.URL = url
	return &other
}

// A whole relay and its commands through PgBouncer in transaction mode: with a direct connection for LISTEN, without
// LISTEN, and with LISTEN by mistake through the pooler, which polls and says so.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listen string // "" leaves it unset; @ is the direct URL
		says   string
	}{"direct LISTEN": {"@", ""}, "polling": {"off", ""}, "LISTEN through the pooler": {"", "not listening"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			pooled, env := through(db, db.Bouncer(t)), settings{"POLL_MAX": "100ms"}
			if c.listen != "" {
				env["LISTEN_URL"] = strings.Replace(c.listen, "@", db.URL, 1)
			}
			out := relays(t, pooled, rabbitOutlet(t, ""), env, c.says)
			if c.says == "" && strings.Contains(out, "level=WARN") {
				t.Errorf("it warns:\n%s", out)
			}
			if c.listen != "off" {
				return
			}
			db.Exec(t, `UPDATE jobs SET status = 'dead', last_error = 'x' WHERE id IN (SELECT id FROM jobs LIMIT 10)`)
			for _, args := range [][]string{
				{"status"}, {"dead", "list"}, {"dead", "requeue", "--limit", "5", "--all"}, {"dead", "discard", "--all"}, {"keys", "list"},
				{"kinds", "set", "r", "100"}, {"kinds", "list"}, {"replay", "--kind", "r"}, {"enqueue", "--kind", "r", "--payload", "1"}, {"migrate", "status"},
			} {
				command(t, pooled, args...)
			}
			if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL`); n != 290 {
				t.Errorf("%d copies, want 290", n)
			}
		})
	}
}

// Settings of a role or database that somebody made for other programs.
func TestStrangeRoleSettings(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"limits":       {"statement_timeout = '1s'", "idle_in_transaction_session_timeout = '1min'", "lock_timeout = '20ms'", "idle_session_timeout = '2s'"},
		"serializable": {"default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on"},
		"formats": {"TimeZone = 'Asia/Kathmandu'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'",
			"standard_conforming_strings = off", "extra_float_digits = -10", "search_path = ''"},
		"planner": {"plan_cache_mode = force_generic_plan", "enable_indexscan = off", "enable_nestloop = off", "jit_above_cost = 0", "synchronous_commit = off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Empty(t)
			as := through(db, withRole(t, db, set))
			command(t, as, "migrate", "up")
			slow := make(chan struct{})
			if name == "limits" {
				go func() { defer close(slow); holdRows(t, db, 3*time.Second) }()
			} else {
				close(slow)
			}
			relays(t, as, kafkaOutlet(t, ""), nil, "")
			<-slow
			command(t, as, "kinds", "set", "r", "100")
			command(t, as, "replay", "--kind", "r", "--rate", "100000")
			command(t, as, "dead", "list")
			command(t, as, "status")
			if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE replay_of IS NOT NULL`); n != 300 {
				t.Errorf("%d copies, want 300", n)
			}
		})
	}
}

// withRole makes an owner of everything in the schema with these settings, and returns its URL.
func withRole(t *testing.T, db *testdb.DB, set []string) string {
	t.Helper()
	role := pgx.Identifier{db.Schema + "_r"}.Sanitize()
	db.Exec(t, "CREATE ROLE "+role+" LOGIN SUPERUSER PASSWORD 'weak'")
	for _, s := range set {
		db.Exec(t, "ALTER ROLE "+role+" SET "+s)
	}
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.RawQuery = url.UserPassword(db.Schema+"_r", "weak"), "sslmode=disable"
	return u.String()
}

// holdRows locks claimed rows for longer than the role's statements may last: the settlement waits for them all the same.
func holdRows(t *testing.T, db *testdb.DB, d time.Duration) {
	ctx := context.WithoutCancel(t.Context())
	err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		for end := time.Now().Add(generous); ; time.Sleep(time.Millisecond) {
			tag, err := tx.Exec(ctx, "SELECT id FROM jobs WHERE status = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED")
			if err != nil || tag.RowsAffected() > 0 {
				time.Sleep(d)
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("no job was claimed")
			}
		}
	})
	if err != nil {
		t.Errorf("hold rows: %v", err)
	}
}

// A relay that is given a read-only standby by mistake waits and says why, works as soon as the standby is promoted,
// and waits again when its primary is demoted under it: nothing is lost or sent twice.
func TestStandby(t *testing.T) {
	t.Parallel()
	server := services.OwnPostgres(t)
	db := testdb.On(t, server.URL)
	db.Migrate(t, migrations.Options{})
	standby := func() {
		server.Write("standby.signal", "")
		server.Stop()
		server.Start()
	}
	standby()
	o := kafkaOutlet(t, "")
	env := o.settings.with(settings{"ROUTES": routes("r", []string{o.to}), "LEASE": "10s", "PUBLISH_TIMEOUT": "5s"})
	p := begin(t, binary, db, env)
	readOnly := func() error {
		if code, body := p.get("/readyz"); code != 503 || !strings.Contains(body, "read-only") {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	}
	eventually(t, "it says that the database is read-only", readOnly)
	promote := func() {
		db.Pool.Reset() // its connections are gone
		value[bool](t, db, "SELECT pg_promote()")
	}
	promote()
	eventually(t, "it is ready", p.isReady)
	s := newShop(t, db)
	s.trade(2000, "r") // some are in flight when it happens
	standby()
	eventually(t, "it notices", func() error {
		if code, body := p.get("/readyz"); code != 503 {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
	promote()
	s.trade(200, "r")
	s.drained(generous)
	if n := s.arrived(o, "r"); n != 0 {
		t.Errorf("%d duplicates", n)
	}
	if code := p.terminate(generous); code != 0 {
		t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// TLS to Postgres, with an authority of one's own: every connection is encrypted and verified; what can't be verified or
// isn't encrypted is said clearly.
func TestPostgresOverTLS(t *testing.T) {
	t.Parallel()
	server, ca := services.OwnPostgresWithTLS(t)
	verified := server.URL + "?sslmode=verify-full&sslrootcert=" + url.QueryEscape(ca)
	db := testdb.On(t, verified)
	db.Migrate(t, migrations.Options{})
	named := through(db, db.URL+"&application_name=relay-tls")
	o := kafkaOutlet(t, "")
	p := start(t, named, o.settings.with(settings{"ROUTES": routes("r", []string{o.to})}))
	s := newShop(t, db)
	s.trade(200, "r")
	s.drained(generous)
	s.arrived(o, "r")
	const open = `SELECT count(*) FILTER (WHERE s.ssl) || ' of ' || count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.application_name LIKE 'relay-tls%'`
	if got := value[string](t, db, open); got[0] == '0' || got != strings.Join([]string{got[:1], got[:1]}, " of ") {
		t.Errorf("encrypted: %s", got)
	}
	if p.metric("relay_listener_up") != 1 {
		t.Error("LISTEN doesn't work over TLS")
	}
	p.terminate(generous)
	other := filepath.Join(t.TempDir(), "other.pem")
	kafkaCA, err := os.ReadFile(services.KafkaWithTLS(t).CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, kafkaCA, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, bad := range map[string]string{
		"certificate signed by unknown authority": strings.Replace(db.URL, url.QueryEscape(ca), url.QueryEscape(other), 1),
		"no encryption": strings.Replace(db.URL, "sslmode=verify-full", "sslmode=disable", 1),
		"sslrootcert":   strings.Replace(db.URL, url.QueryEscape(ca), url.QueryEscape(ca+".absent"), 1),
	} {
		code, out := checked(t, through(db, bad), settings{"ROUTES": routes("r", []string{"discard:"})})
		if code == 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit %d:\n%s", says, code, out)
		}
	}
}

// SQS over https with an authority of one's own, by AWS's own variable.
func TestSQSOverTLS(t *testing.T) {
	t.Parallel()
	target, err := url.Parse(services.SQS(t))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	t.Cleanup(front.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o := sqsOutlet(t, "")
	o.settings = o.settings.with(settings{"SQS_ENDPOINT": front.URL})
	code, out := checked(t, testdb.New(t), o.settings.with(settings{"ROUTES": routes("r", []string{o.to})}))
	if code == 0 || !strings.Contains(out, "certificate signed by unknown authority") {
		t.Errorf("without the authority: exit %d:\n%s", code, out)
	}
	relays(t, testdb.New(t), o, settings{"=AWS_CA_BUNDLE": ca}, "")
}
