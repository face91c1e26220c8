package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
)

func TestDemoOnGivenDatabase(t *testing.T) {
	t.Parallel()
	rawURL := ownDatabase(t)
	env := config.Environ{"RELAY_DATABASE_URL": rawURL, "RELAY_ADMIN_ADDR": "off", "RELAY_ROUTES_FILE": "not-read", "RELAY_KAFKA_BROKERS": services.Kafka(t)}
	o := must(t, exitDone, env, "demo", "--jobs", "100", "--rate", "0")
	has(t, "the summary", o.err, "committed 100\n", "rolled back ", "delivered 100\n", "duplicates 0\n", "lost 0\n", "p50", "p99")
	ids := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(o.out), "\n") {
		var job struct{ ID string }
		if err := json.Unmarshal([]byte(line), &job); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ids[job.ID] = true
	}
	if len(ids) != 100 {
		t.Errorf("%d ids on standard output", len(ids))
	}

	out := must(t, exitDone, env, "demo", "--jobs", "10", "--rate", "0", "--json").out
	var summary map[string]float64
	if err := json.Unmarshal([]byte(lastLine(out)), &summary); err != nil || summary["committed"] != 10 || summary["lost"] != 0 {
		t.Errorf("%v: %s", err, lastLine(out))
	}

	// The usual page's address is taken; Ctrl-C ends an endless demo.
	env["RELAY_ADMIN_ADDR"] = silent(t)
	p := start(t, env, "demo")
	eventually(t, "jobs are delivered", func() bool { return strings.Count(p.out.String(), "\n") > 20 })
	p.signal(syscall.SIGINT)
	if code := p.exit(generous); code != exitDone {
		t.Errorf("exit %d after Ctrl-C", code)
	}
	has(t, "the summary", p.err.String(), "page: http://127.0.0.1:", "end: Ctrl-C", "lost 0\n", "duplicates 0\n")
	hasNot(t, "the notes", p.err.String(), "page: http://"+env["RELAY_ADMIN_ADDR"]+"/")

	conn, err := pgx.Connect(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var left bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regnamespace('relay_demo') IS NOT NULL").Scan(&left); err != nil || left {
		t.Errorf("the schema is left: %v, %v", left, err)
	}
}

// ownDatabase makes a database for one test: the demo's schema has a fixed name.
func ownDatabase(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(services.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	admin := func(sql string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		conn, err := pgx.Connect(ctx, u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	name := "cli_demo_" + strings.ToLower(rand.Text()[:8])
	admin("CREATE DATABASE " + name)
	t.Cleanup(func() { admin("DROP DATABASE " + name + " WITH (FORCE)") })
	own := *u
	own.Path = "/" + name
	return own.String()
}

func TestDemoWithoutDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a Postgres, which is downloaded the first time; -short leaves it out")
	}
	p := start(t, config.Environ{"RELAY_ADMIN_ADDR": "off"}, "demo", "--jobs", "20", "--rate", "0")
	if code := p.exit(5 * generous); code != exitDone {
		t.Errorf("exit %d", code)
	}
	has(t, "the summary", p.err.String(), "committed 20\n", "delivered 20\n", "lost 0\n")
}
