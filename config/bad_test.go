package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// all is what run needs.
var all = Need{DatabaseURL: true, Routes: true}

// with returns settings that work, changed; nil values are left out.
func with(changes map[string]string) Environ {
	env := Environ{
		"RELAY_DATABASE_URL": "postgres://u:s3cr3t@127.0.0.1:5432/shop",
		"RELAY_ROUTES":       `routes: [{kind: a, to: ["discard:"]}]`,
	}
	for name, value := range changes {
		env["RELAY_"+name] = value
	}
	return env
}

// tooLong has a duration over what the type holds.
const tooLong = "2628000h"

func TestB30BadSettings(t *testing.T) {
	t.Parallel()
	durations := []string{"LEASE", "PUBLISH_TIMEOUT", "POLL_MIN", "POLL_MAX", "RETRY_BASE", "RETRY_MAX", "RETENTION", "RETENTION_DEAD", "DRAIN_TIMEOUT"}
	counts := []string{"WORKERS", "BATCH_SIZE", "BATCH_BYTES", "DATABASE_CONNECTIONS"}
	type bad struct{ name, value string }
	var cases []bad
	for _, name := range durations {
		for _, value := range []string{"-1s", "5", "abc", tooLong, "1e400s", "0", "30 s"} {
			if name == "RETENTION" && value == "0" {
				continue // deletes done jobs as they settle
			}
			cases = append(cases, bad{name, value})
		}
	}
	for _, name := range counts {
		for _, value := range []string{"0", "-1", "10000000000000", "99999999999999999999", "many", "1.5e3", "0x10", "1_000"} {
			cases = append(cases, bad{name, value})
		}
	}
	cases = append(cases,
		bad{"DATABASE_CONNECTIONS", "1"}, bad{"DATABASE_CONNECTIONS", "1001"}, bad{"BATCH_SIZE", "10001"}, bad{"WORKERS", "257"},
		bad{"BATCH_BYTES", "8 parsecs"}, bad{"BATCH_BYTES", "2GiB"}, bad{"LEASE", "24h1s"},
		bad{"MIGRATE", "yes"}, bad{"LOG_LEVEL", "shout"}, bad{"LOG_FORMAT", "xml"}, bad{"ADMIN_ADDR", "8321"}, bad{"ADMIN_ADDR", "host:99999"},
		bad{"ADMIN_ADDR", "host:http"}, bad{"TABLE", `jobs"; DROP TABLE x`}, bad{"TABLE", "a.b.c"}, bad{"TABLE", strings.Repeat("x", 51)}, bad{"TABLE", ".jobs"}, bad{"TABLE", "shop."}, bad{"TABLE", "jöbs"}, bad{"TABLE", "my jobs"},
		bad{"SOURCE", "a/b"}, bad{"SOURCE", "a b"}, bad{"SOURCE", "é"}, bad{"SINKS", "kafka"}, bad{"SINKS", "Kafka:kafka"}, bad{"SINKS", "kafka:"},
		bad{"SINKS", "batch:kafka"}, bad{"SINKS", "routes:kafka"}, bad{"SINKS", "a-b:kafka,a_b:sqs"},
	)
	for _, c := range cases {
		_, problems, _ := Load(with(map[string]string{c.name: c.value}), all)
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Text, "RELAY_"+c.name) {
			t.Errorf("%s=%q: got problems %v, want one that names it", c.name, c.value, problems)
			continue
		}
		if text := problems[0].Text; !strings.Contains(text, "must") && !strings.Contains(text, "can't") || strings.Contains(text, "\n") {
			t.Errorf("%s=%q: %q doesn't give the rule in one line", c.name, c.value, text)
		}
	}
}

func TestRuleIsInTheProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"LEASE", "5", `RELAY_LEASE="5": must be a duration such as 500ms, 30s or 5m from 1s to 24h`},
		{"WORKERS", "0", `RELAY_WORKERS="0": must be a whole number from 1 to 256`},
		{"BATCH_BYTES", "1", `RELAY_BATCH_BYTES="1": must be a size such as 512KiB or 8MiB from 1KiB to 1GiB`},
		{"RETENTION_DEAD", "0", `RELAY_RETENTION_DEAD="0": must be never, or a duration such as 500ms, 30s or 5m from 1s to 87600h`},
		{"LOG_LEVEL", "shout", `RELAY_LOG_LEVEL="shout": must be debug, info, warn or error`},
		{"PUBLISH_TIMEOUT", "2m", `RELAY_LEASE="1m": must be longer than RELAY_PUBLISH_TIMEOUT (2m)`},
		{"LEASE", "20s", `RELAY_LEASE="20s": must be longer than RELAY_PUBLISH_TIMEOUT (20s)`},
		{"RETRY_BASE", "2h", `RELAY_RETRY_MAX="1h": must be at least RELAY_RETRY_BASE (2h)`},
		{"POLL_MIN", "1500ms", `RELAY_POLL_MAX="1s": must be at least RELAY_POLL_MIN (1.5s)`},
		{"SOURCE", "a\nb", `RELAY_SOURCE="a\nb": must be up to 100 printable ASCII characters without space and slash`},
	} {
		_, problems, _ := Load(with(map[string]string{c.name: c.value}), all)
		if problems.Error() != c.want {
			t.Errorf("%s=%q:\n got %s\nwant %s", c.name, c.value, problems.Error(), c.want)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, problems, _ := Load(Environ{"RELAY_LEASE": "-3s", "RELAY_WORKERS": "x", "RELAY_ROUTES": "routes: ["}, all)
	var names []string
	for _, p := range problems {
		names = append(names, p.Name)
	}
	got := strings.Join(names, " ")
	if want := "RELAY_WORKERS RELAY_LEASE RELAY_DATABASE_URL RELAY_ROUTES"; got != want {
		t.Errorf("got problems of %s, want %s", got, want)
	}
	if lines := strings.Split(problems.Error(), "\n"); len(lines) != 4 {
		t.Errorf("got %d lines, want 4:\n%v", len(lines), problems)
	}
}

// Every one of these holds the password in a place that makes a parser quote it.
func TestDatabaseURLNeverShowsItsPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:s3cr3t@127.0.0.1:bad/x", "postgres://u:s3cr3t/x@127.0.0.1/x", "postgres://u:s3cr3t%zz@h/x",
		"s3cr3t", "host=h password='s3cr3t", "mysql://u:s3cr3t@h/x", "postgres://u:s3cr3t@h/x?sslmode=nope",
		"postgres://u:s3cr3t@h:1,i:2,j:3:s3cr3t/x", "postgres://u:s3cr3t@h/x?pool_max_conns=s3cr3t", "postgres://u:s3cr3t@h/x?connect_timeout=s3cr3t",
		"postgres://h/x?service=s3cr3t&servicefile=/nowhere", "postgres://u:s3cr3t@[::1/x", "host=h port=s3cr3t",
	} {
		for _, name := range []string{"DATABASE_URL", "LISTEN_URL"} {
			_, problems, _ := Load(with(map[string]string{name: url}), all)
			if len(problems) != 1 || problems[0].Name != "RELAY_"+name {
				t.Errorf("%s=%s: got %v, want one problem that names it", name, url, problems)
			}
			if strings.Contains(problems.Error(), "s3cr3t") {
				t.Errorf("%s=%s: the problem shows the password: %v", name, url, problems)
			}
		}
	}
}

func TestNoProblem(t *testing.T) {
	t.Parallel()
	for _, change := range []map[string]string{
		{}, {"LEASE": ""}, {"LEASE": "  "}, {"LEASE": " 2m "}, {"RETENTION": "0"}, {"RETENTION": "0s"}, {"RETENTION_DEAD": "NEVER"}, {"LOG_LEVEL": "WARN"},
		{"ADMIN_ADDR": "OFF"}, {"ADMIN_ADDR": ":0"}, {"ADMIN_ADDR": "[::1]:8321"}, {"TABLE": "shop.Jobs"}, {"TABLE": "my-jobs"}, {"TABLE": "my_shop.jobs_2"}, {"BATCH_SIZE": "10000"}, {"LISTEN_URL": "off"},
		{"DATABASE_URL": "host=/run/postgresql dbname=shop"}, {"DATABASE_URL": "postgres:///shop?pool_max_conns=3&default_query_exec_mode=exec"},
		{"ROUTES": `[{"kind": "a", "to": ["discard:"]}]`}, {"SINKS": "kafka-eu:kafka, kafka-us:kafka,,"},
	} {
		if _, problems, _ := Load(with(change), all); len(problems) > 0 {
			t.Errorf("%v: got %v, want none", change, problems)
		}
	}
}

// Each file is one mistake in a routes file; its first line says what the problem must say.
func TestBadRoutes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/routes-*.yml")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files (%v), want at least 20", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		want := strings.TrimPrefix(first, "# ")
		_, fromFile, _ := Load(Environ{"RELAY_ROUTES_FILE": file}, Need{Routes: true})
		if got := fromFile.Error(); got != `RELAY_ROUTES_FILE="`+file+`": `+want {
			t.Errorf("%s as a file:\n got %s\nwant %s", file, got, want)
		}
		_, inline, _ := Load(Environ{"RELAY_ROUTES": string(text)}, Need{Routes: true})
		if got := inline.Error(); got != "RELAY_ROUTES: "+want {
			t.Errorf("%s inline:\n got %s\nwant %s", file, got, want)
		}
	}
}

func TestRoutesFileProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.yml")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  Environ
		want string
	}{
		{Environ{"RELAY_ROUTES_FILE": "no-such-file.yaml"}, `^RELAY_ROUTES_FILE="no-such-file.yaml": no such file or directory$`},
		{Environ{"RELAY_ROUTES_FILE": dir}, `^RELAY_ROUTES_FILE=".*": is a directory$`},
		{Environ{"RELAY_ROUTES_FILE": empty}, `^RELAY_ROUTES_FILE=".*": the file is empty$`},
		{Environ{"RELAY_ROUTES_FILE": "/dev/zero"}, `^RELAY_ROUTES_FILE="/dev/zero": the file is longer than 1MiB$`},
		{Environ{"RELAY_ROUTES_FILE": "both.yaml", "RELAY_ROUTES": "x"}, `^RELAY_ROUTES_FILE="both.yaml": is set together with RELAY_ROUTES; keep one$`},
		{Environ{}, `^RELAY_ROUTES: is required`},
		{Environ{"RELAY_ROUTES": "# nothing"}, `^RELAY_ROUTES: no routes`},
	} {
		_, problems, _ := Load(c.env, Need{Routes: true})
		if !regexp.MustCompile(c.want).MatchString(problems.Error()) {
			t.Errorf("%v: got %q, want it to match %s", c.env, problems.Error(), c.want)
		}
	}
}

// A wrong setting must be refused at once, however large the input.
func TestB30ProblemsComeQuickly(t *testing.T) {
	t.Parallel()
	deep := "routes: " + strings.Repeat("[", 5000)
	bomb := "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\nroutes: *d\n"
	start := time.Now()
	for _, routes := range []string{deep, bomb, "routes: &r [*r]", strings.Repeat("- {kind: a}\n", 20000)} {
		if _, problems, _ := Load(with(map[string]string{"ROUTES": routes}), all); len(problems) == 0 {
			t.Errorf("%.40q…: got no problem", routes)
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}
