package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/sinks/sinktest"
)

const toDiscard = `[{kind: "*", to: ["discard:"]}]`

func done(t *testing.T, db *testdb.DB) int {
	t.Helper()
	return testdb.One[int](t, db, "SELECT count(*) FROM jobs WHERE status = 'done'")
}

func insert(t *testing.T, db *testdb.DB, kind string, n int) {
	t.Helper()
	db.Exec(t, "INSERT INTO jobs (kind, payload) SELECT $1, '{}' FROM generate_series(1, $2::int)", kind, n)
}

func TestRunUntilTerminated(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p := start(t, on(db, config.Environ{"RELAY_ROUTES": `[{kind: "*", to: ["stdout:"]}]`, "RELAY_ADMIN_ADDR": freeAddr(t)}), "run")
	p.ready(200)
	insert(t, db, "a", 25)
	eventually(t, "25 done", func() bool { return done(t, db) == 25 })
	documented(t, p)
	has(t, "health", must(t, exitDone, config.Environ{"RELAY_ADMIN_ADDR": p.admin}, "health", "--ready").out, `"status": "ok"`)
	p.signal(syscall.SIGTERM)
	if code := p.exit(generous); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
	if n := strings.Count(p.out.String(), `"id":"shop/`); n != 25 {
		t.Errorf("%d lines, want 25", n)
	}
	has(t, "the log", p.err.String(), "drained")
	hasNot(t, "the log", p.err.String(), "panic", "DATA RACE")
}

// documented wants every metric of the relay in docs/metrics.md.
func documented(t *testing.T, p *process) {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text := p.get("/metrics")
	names := regexp.MustCompile(`(?m)^# TYPE (relay_\w+)`).FindAllStringSubmatch(text, -1)
	if len(names) < 10 {
		t.Errorf("%d metrics: %s", len(names), text)
	}
	for _, name := range names {
		has(t, "docs/metrics.md", string(page), "`"+name[1])
	}
}

// A broker that swallows everything holds the drain up; a second signal gives up at once.
func TestSecondSignalGivesUp(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var sent atomic.Bool // before that there is nothing to give up
	p := start(t, on(db, config.Environ{
		"RELAY_ROUTES": `[{kind: "*", to: ["kafka:t"]}]`, "RELAY_KAFKA_BROKERS": hearing(t, func() { sent.Store(true) }), "RELAY_ADMIN_ADDR": freeAddr(t),
		"RELAY_PUBLISH_TIMEOUT": "50s", "RELAY_DRAIN_TIMEOUT": "55s", "RELAY_LEASE": "2m",
	}), "run")
	p.ready(200)
	insert(t, db, "a", 1)
	eventually(t, "it is on its way", sent.Load)
	p.signal(syscall.SIGTERM)
	has(t, "readyz", p.ready(503), `"draining": true`, `"status": "unavailable"`)
	p.signal(syscall.SIGTERM)
	if code := p.exit(20 * time.Second); code != exitFailed {
		t.Errorf("exit %d after the second signal, want 1", code)
	}
}

func TestB27RunWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	proxy := sinktest.NewProxy(t, db.Config.Host+":"+fmt.Sprint(db.Config.Port))
	proxy.Cut()
	env := on(db, config.Environ{"RELAY_ROUTES": toDiscard, "RELAY_ADMIN_ADDR": freeAddr(t), "RELAY_DATABASE_URL": through(t, db, proxy)})
	p := start(t, env, "run")
	eventually(t, "the reason", func() bool { return strings.Contains(p.ready(503), "refused") })
	if code, _ := p.get("/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if code, body := p.get("/"); code != 200 || !strings.Contains(body, "unavailable") {
		t.Errorf("page: %d", code)
	}
	must(t, exitFailed, config.Environ{"RELAY_ADMIN_ADDR": p.admin}, "health", "--ready")
	proxy.Heal()
	p.ready(200)
	insert(t, db, "a", 1)
	eventually(t, "one done", func() bool { return done(t, db) == 1 })
	p.signal(syscall.SIGTERM)
	if code := p.exit(generous); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// through is the database's URL with a proxy in front.
func through(t *testing.T, db *testdb.DB, proxy *sinktest.Proxy) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Addr()
	return u.String()
}

func TestB26TerminatedWhileItWaits(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	readOnly := db.URL + "&default_transaction_read_only=on"
	for name, u := range map[string]string{"away": "postgres://u@127.0.0.1:1/x", "silent": "postgres://u@" + silent(t) + "/x?sslmode=disable", "read-only": readOnly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, on(db, config.Environ{"RELAY_ROUTES": toDiscard, "RELAY_ADMIN_ADDR": freeAddr(t), "RELAY_DATABASE_URL": u}), "run")
			p.ready(503)
			p.signal(syscall.SIGTERM)
			if code := p.exit(generous); code != 0 {
				t.Errorf("exit %d", code)
			}
		})
	}
}

func TestRunRefusesWhatWaitingDoesNotMend(t *testing.T) {
	t.Parallel()
	empty := testdb.Empty(t)
	taken := freeAddr(t)
	ln, err := net.Listen("tcp", taken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	noDatabase, err := url.Parse(empty.URL)
	if err != nil {
		t.Fatal(err)
	}
	noDatabase.Path = "/no_such_database"
	for name, test := range map[string]struct {
		set  config.Environ
		says []string
	}{
		"not migrated":      {config.Environ{}, []string{"relay migrate up", "RELAY_MIGRATE"}},
		"no database":       {config.Environ{"RELAY_DATABASE_URL": noDatabase.String()}, []string{"no_such_database", "create the database"}},
		"password":          {config.Environ{"RELAY_DATABASE_URL": refusing(t, "28P01", "password authentication failed for user \"u\"")}, []string{"password"}},
		"pooler's password": {config.Environ{"RELAY_DATABASE_URL": refusing(t, "08P01", "password authentication failed")}, []string{"check the user"}},
		"pooler's user":     {config.Environ{"RELAY_DATABASE_URL": refusing(t, "08P01", "\"trust\" authentication failed")}, []string{"check the user"}},
		"pooler's database": {config.Environ{"RELAY_DATABASE_URL": refusing(t, "08P01", "database \"x\" does not exist")}, []string{"create the database"}},
		"admin address":     {config.Environ{"RELAY_ADMIN_ADDR": taken}, []string{"RELAY_ADMIN_ADDR", taken}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := on(empty, config.Environ{"RELAY_ROUTES": toDiscard})
			for k, v := range test.set {
				env[k] = v
			}
			o := must(t, exitFailed, env, "run")
			last := lastLine(o.err)
			has(t, "the last line", last, append(test.says, "relay: ")...)
			hasNot(t, "the output", o.err+o.out, "s3cr3tvalue", "goroutine")
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// refusing is the URL of a server that refuses every connection with an error of its own.
func refusing(t *testing.T, code, message string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			server := pgproto3.NewBackend(conn, conn)
			if _, err := server.ReceiveStartupMessage(); err == nil {
				server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message})
				_ = server.Flush()
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return "postgres://u:s3cr3tvalue@" + ln.Addr().String() + "/x?sslmode=disable"
}

func TestRunMigratesIfTold(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	p := start(t, on(db, config.Environ{"RELAY_ROUTES": toDiscard, "RELAY_ADMIN_ADDR": freeAddr(t), "RELAY_MIGRATE": "true"}), "run")
	p.ready(200)
	insert(t, db, "a", 1)
	eventually(t, "one done", func() bool { return done(t, db) == 1 })
}

// While the database answers nothing the relay still answers about itself.
func TestAnswersWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	proxy := sinktest.NewProxy(t, db.Config.Host+":"+fmt.Sprint(db.Config.Port))
	routes := `[{kind: a, to: ["discard:"]}]`
	p := start(t, on(db, config.Environ{"RELAY_ROUTES": routes, "RELAY_ADMIN_ADDR": freeAddr(t), "RELAY_DATABASE_URL": through(t, db, proxy)}), "run")
	p.ready(200)
	eventually(t, "figures", func() bool {
		_, text := p.get("/metrics")
		return strings.Contains(text, `relay_jobs{kind="a",status="ready"} 0`)
	})
	proxy.Swallow()
	has(t, "readyz", p.ready(503), `"status": "unavailable"`)
	for _, path := range []string{"/metrics", "/", "/api/status", "/healthz", "/readyz"} {
		begin := time.Now()
		code, body := p.get(path)
		if took := time.Since(begin); took > time.Second || code == 0 || body == "" {
			t.Errorf("%s: %d after %v", path, code, took)
		}
	}
	_, text := p.get("/metrics")
	has(t, "metrics", text, "relay_stats_age_seconds", `relay_build_info{`, "go_goroutines", "process_cpu_seconds_total")
	p.signal(syscall.SIGTERM)
	if code := p.exit(generous); code != 0 && code != exitFailed {
		t.Errorf("exit %d", code)
	}
}

func TestCanaryIsInNoOutput(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3tvalue"
	services.Postgres(t)
	env := config.Environ{
		"RELAY_DATABASE_URL": "postgres://u:" + canary + "@127.0.0.1:1/x", "RELAY_LISTEN_URL": "postgres://u:" + canary + "@127.0.0.1:1/y",
		"RELAY_ROUTES":        `[{kind: a, to: ["rabbitmq:/q", "kafka:t"]}]`,
		"RELAY_RABBITMQ_URL":  "amqp://u:" + canary + "@127.0.0.1:1/",
		"RELAY_KAFKA_BROKERS": "127.0.0.1:1", "RELAY_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "RELAY_KAFKA_SASL_USERNAME": "u", "RELAY_KAFKA_SASL_PASSWORD": canary,
		"RELAY_LOG_LEVEL": "debug", "RELAY_ADMIN_ADDR": freeAddr(t),
	}
	for _, args := range [][]string{{"check"}, {"check", "--json"}, {"status"}, {"migrate", "up"}, {"dead", "list"}, {"enqueue", "--kind", "a", "--payload", "1"}} {
		o := must(t, exitFailed, env, args...)
		hasNot(t, strings.Join(args, " "), o.out+o.err, canary)
	}
	p := start(t, env, "run")
	body := p.ready(503)
	_, page := p.get("/")
	_, api := p.get("/api/status")
	_, metrics := p.get("/metrics")
	p.signal(syscall.SIGTERM)
	p.exit(generous)
	hasNot(t, "run's output", body+page+api+metrics+p.out.String()+p.err.String(), canary)
}
