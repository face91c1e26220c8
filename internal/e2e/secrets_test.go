package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
)

// The canaries: each stands in one place that nobody but its addressee may see.
const (
	inDatabase, inRabbit, inAWS, inToken = "canaryDatabase7Q", "canaryRabbit7Q", "canaryAWSsecret7Q", "canaryAWStoken7Q"
	inPayload, inBody, inHeader, inKey   = "canaryPayload7Q", "canaryBody7Q", "canaryHeader7Q", "canaryKey7Q"
)

var (
	ofJobs = []string{inPayload, inBody, inHeader, inKey}
	// byDesign are the commands that show something of a job because an operator asks for it.
	byDesign = map[string][]string{"dead list": {inKey}, "keys list": {inKey}, "dead show": ofJobs}
)

// leaks collects everything that relays and commands say, and searches it.
type leaks struct {
	t       *testing.T
	db      *testdb.DB
	env     settings
	secrets []string
	looked  int
}

// see searches one output for every canary as it is, in base64 and in hexadecimal digits.
func (l *leaks) see(what, text string) {
	l.t.Helper()
	l.looked += len(text)
	allowed := byDesign[strings.Join(strings.Fields(what)[:min(2, len(strings.Fields(what)))], " ")]
	for _, c := range slices.Concat(l.secrets, ofJobs) {
		if slices.Contains(allowed, c) {
			continue
		}
		forms := []string{c, hex.EncodeToString([]byte(c))}
		for skip := range 3 { // base64 has three forms, by where in a group of three it begins
			inner := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + c))
			forms = append(forms, inner[4:len(inner)-4])
		}
		for _, form := range forms {
			if at := strings.Index(text, form); at >= 0 {
				l.t.Errorf("%s shows %s: …%s…", what, c, text[max(0, at-200):min(len(text), at+100)])
				return
			}
		}
	}
}

// run runs one command with other settings on top, whatever it comes to.
func (l *leaks) run(more settings, stdin string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(plain, args...)
	cmd.Env = environ(l.t, l.db, l.env.with(more))
	cmd.Stdin = strings.NewReader(stdin)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		l.t.Fatalf("relay %v didn't run", args)
	}
	l.see(strings.Join(args, " "), string(out))
}

// look reads all that a process serves.
func (l *leaks) look(p *process) {
	l.t.Helper()
	for _, path := range []string{"/metrics", "/readyz", "/", "/api/status", "/healthz"} {
		_, body := p.get(path)
		l.see(path, body)
	}
}

// P10: payloads and secrets are in no log, metric, page, error or command's output, on good days and bad ones, at the
// most talkative log level.
func TestP10NothingLeaks(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	l := &leaks{t: t, db: db}
	kafka, rabbit, queue := kafkaOutlet(t, ""), rabbitOutlet(t, ""), sqsOutlet(t, "")
	sasl := services.KafkaWithSASL(t)
	l.secrets = []string{inDatabase, inRabbit, inAWS, inToken, sasl.Password}
	l.env = kafka.settings.with(rabbit.settings).with(queue.settings).with(settings{
		"LOG_LEVEL": "debug", "LOG_FORMAT": "json", "RETRY_BASE": "50ms", "RETRY_MAX": "100ms", "LEASE": "5s", "PUBLISH_TIMEOUT": "2s",
		"DATABASE_URL": "", "DATABASE_URL_FILE": l.file("database", canaryRole(t, db)),
		"RABBITMQ_URL": "", "RABBITMQ_URL_FILE": l.file("rabbitmq", canaryUser(t, rabbit.settings["RABBITMQ_URL"])),
		"KAFKA_COMPRESSION": "none", "KAFKA_BROKERS": sasl.Addr, "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_SASL_USERNAME": sasl.User,
		"KAFKA_SASL_PASSWORD_FILE": l.file("kafka", sasl.Password),
		"=AWS_ACCESS_KEY_ID":       "AKIDEXAMPLE", "=AWS_SECRET_ACCESS_KEY": inAWS, "=AWS_SESSION_TOKEN": inToken,
		"ROUTES": fmt.Sprintf(`[{kind: all, to: [%q, %q, %q]}, {kind: dying, to: [%q], order: key}, {kind: refused, to: [%q]}, {kind: nowhere, to: ["kafka:no.such.topic", "rabbitmq:no.such/x", "sqs:no-such"]}]`,
			kafka.to, rabbit.to, queue.to, kafka.to, rabbit.to),
	})
	p := begin(t, plain, db, l.env)
	eventually(t, "the relay is ready", p.isReady)
	l.jobs()
	eventually(t, "good jobs are done, bad ones dead", func() error {
		got := value[string](t, db, `SELECT string_agg(kind || ' ' || status || ' ' || n, ', ' ORDER BY kind, status) FROM (SELECT kind, status, count(*) n FROM jobs WHERE kind IN ('all', 'dying') GROUP BY 1, 2) c`)
		if got != "all done 3, dying dead 3" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	l.look(p)
	l.commands()
	p.terminate(generous)
	l.see("the log of run", p.output())
	l.badDays()
	if l.looked < 50_000 {
		t.Errorf("only %d bytes were looked at", l.looked)
	}
}

// file keeps a secret in a file.
func (l *leaks) file(name, secret string) string {
	path := filepath.Join(l.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// canaryRole is the URL of a role whose password is a canary.
func canaryRole(t *testing.T, db *testdb.DB) string {
	t.Helper()
	role := db.Schema + "_c"
	quoted := pgx.Identifier{role}.Sanitize()
	db.Exec(t, "CREATE ROLE "+quoted+" LOGIN SUPERUSER PASSWORD '"+inDatabase+"'")
	t.Cleanup(func() {
		_, _ = db.Pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
	})
	return withUser(t, db.URL, role, inDatabase)
}

func withUser(t *testing.T, text, user, password string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// canaryUser is the URL of a RabbitMQ user whose password is a canary.
func canaryUser(t *testing.T, broker string) string {
	t.Helper()
	user := "c-" + name(t)
	services.RabbitMQCtl(t, "add_user", user, inRabbit)
	services.RabbitMQCtl(t, "set_permissions", user, ".*", ".*", ".*")
	t.Cleanup(func() { services.RabbitMQCtl(t, "delete_user", user) })
	return withUser(t, broker, user, inRabbit)
}

// jobs puts canaries into jobs that are delivered, that die of each part, and that the database refuses to settle.
func (l *leaks) jobs() {
	l.t.Helper()
	headers := fmt.Sprintf(`{"h": %q}`, inHeader)
	payload := fmt.Sprintf(`{"p": %q, "nul": "x"}`, inPayload)
	l.db.Exec(l.t, `ALTER TABLE jobs ADD CONSTRAINT no_refused CHECK (kind <> 'refused' OR status <> 'done')`)
	const job = `INSERT INTO jobs (kind, key, headers, payload) VALUES ($1, $2, $3::text::jsonb, $4::text::jsonb)`
	for range 2 {
		l.db.Exec(l.t, job, "all", inKey, headers, payload)
	}
	l.db.Exec(l.t, `INSERT INTO jobs (kind, key, headers, body) VALUES ('all', $1, $2::text::jsonb, $3)`, inKey, headers, []byte("\xff\x00"+inBody))
	l.db.Exec(l.t, job, "dying", inKey, fmt.Sprintf(`{"object": {"x": %q}}`, inHeader), payload)
	l.db.Exec(l.t, job, "dying", inKey+"2", fmt.Sprintf(`{"relay-id": %q}`, inHeader), payload)
	l.db.Exec(l.t, job, "dying", inKey+"3", headers, fmt.Sprintf(`{"p": %q, "pad": %q}`, inPayload, strings.Repeat(inPayload, 200_000)))
	l.db.Exec(l.t, job, "refused", inKey, headers, payload)
	l.db.Exec(l.t, job, "nowhere", inKey, headers, payload)
}

// commands are all that read or change something, and what people mistype.
func (l *leaks) commands() {
	l.t.Helper()
	id := value[string](l.t, l.db, `SELECT min(id)::text FROM jobs WHERE status = 'dead'`)
	for _, args := range [][]string{
		{"check"}, {"check", "--json"}, {"status"}, {"status", "--json"}, {"dead", "list"}, {"dead", "list", "--json"}, {"dead", "show", id},
		{"keys", "list"}, {"keys", "list", "--json"}, {"kinds", "list"}, {"kinds", "set", "all", "100"}, {"migrate", "status"}, {"migrate", "sql"},
		{"migrate", "up"}, {"dead", "requeue", "--id", id}, {"replay", "--kind", "all", "--dry-run"}, {"replay", "--kind", "all"}, {"version"},
		{"dead", "discard", "--all", "--dry-run"}, {"health"}, {"--help"}, {"enqueue", "--kind", "nobody", "--payload", `{"p": "` + inPayload + `"}`},
		{"enqueue", "--kind", "all", "--payload", inPayload}, {"enqueue", "--kind", "all", "--payload", `{"p": "` + inPayload + `\u0000"}`},
		{"enqueue", "--kind", "all", "--payload", `"` + inPayload + ``, "--header", "relay-x=" + inHeader},
	} {
		l.run(nil, "", args...)
	}
	for _, line := range []string{
		inPayload, `{"kind": "all", "payload": ` + inPayload + `}`, `{"kind": "all", "payload": {"x": "` + inPayload + `\ud800"}}`,
		`{"kind": "all", "body": "` + inBody + `!"}`, `{"kind": "all", "payload": 1, "headers": {"a": {"b": "` + inHeader + `"}}}`,
		`{"kind": "all", "payload": 1, "headers": "` + inHeader + `"}`, `{"kind": "all", "payload": 1, "priority": "` + inPayload + `"}`,
	} {
		l.run(nil, line+"\n", "enqueue", "-")
	}
}

// badDays are services that refuse or aren't there, and settings that can't be read.
func (l *leaks) badDays() {
	l.t.Helper()
	away, role := "127.0.0.1:1", l.db.Schema+"_c"
	database := func(u string) settings { return settings{"DATABASE_URL_FILE": "", "DATABASE_URL": u} }
	rabbit := func(u string) settings { return settings{"RABBITMQ_URL_FILE": "", "RABBITMQ_URL": u} }
	credentials := `echo 'expires soon' && echo '{"Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": "` + inAWS + `"}'`
	wrong := withUser(l.t, l.db.URL, role, inDatabase+"x")
	for what, bad := range map[string]settings{
		"wrong database password": database(wrong),
		"database away":           database("postgres://u:" + inDatabase + "@" + away + "/x"),
		"no such database":        database(strings.Replace(wrong, "/postgres?", "/"+"absent?", 1)),
		"database URL broken":     database("postgres://u:" + inDatabase + "@[::1/x"),
		"database port broken":    database("postgres://u:" + inDatabase + "@h:port/x"),
		"database keywords":       database("host=127.0.0.1 port=1 user=u password=" + inDatabase + " sslmode=wrong"),
		"LISTEN broken":           {"LISTEN_URL": "postgres://u:" + inDatabase + "@" + away + "/x"},
		"wrong Kafka password":    {"KAFKA_SASL_PASSWORD_FILE": "", "KAFKA_SASL_PASSWORD": inDatabase},
		"plain Kafka password":    {"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_PASSWORD_FILE": l.file("wrong", inDatabase)},
		"odd Kafka password":      {"KAFKA_SASL_PASSWORD_FILE": l.file("odd", inDatabase+"\t")},
		"login among brokers":     {"KAFKA_BROKERS": "u:" + inDatabase + "@" + away},
		"no Kafka mechanism":      {"KAFKA_SASL_MECHANISM": ""},
		"Kafka away":              {"KAFKA_BROKERS": away},
		"wrong RabbitMQ password": rabbit(withUser(l.t, services.RabbitMQ(l.t), "nobody", inRabbit)),
		"RabbitMQ away":           rabbit("amqp://u:" + inRabbit + "@" + away + "/"),
		"RabbitMQ URL broken":     rabbit("amqp://u:" + inRabbit + "@h:port/%zz"),
		"RabbitMQ scheme":         rabbit("http://u:" + inRabbit + "@h/"),
		"RabbitMQ list":           rabbit("amqp://u:" + inRabbit + "@" + away + "/,u:" + inRabbit + "@h"),
		"SQS away":                {"SQS_ENDPOINT": "http://" + away},
		"SQS that isn't":          {"SQS_ENDPOINT": services.RabbitMQManagement(l.t)},
		"AWS process that warns":  {"=AWS_ACCESS_KEY_ID": "", "=AWS_SECRET_ACCESS_KEY": "", "=AWS_CONFIG_FILE": l.file("aws", "[default]\ncredential_process = "+credentials)},
		"proxy away":              {"SQS_ENDPOINT": "http://sqs.invalid", "=HTTP_PROXY": "http://u:" + inAWS + "@" + away},
		"SQS endpoint with user":  {"SQS_ENDPOINT": "http://u:" + inAWS + "@" + away},
		"both ways":               {"KAFKA_SASL_PASSWORD": inDatabase},
		"no such file":            {"KAFKA_SASL_PASSWORD_FILE": "/absent"},
		"unknown variable":        {"KAFKA_SASL_PASWORD": inDatabase, "DATABASE_PASSWORD": inDatabase},
	} {
		for _, args := range [][]string{{"check"}, {"check", "--json"}, {"status"}, {"dead", "list"}} {
			l.run(bad, "", args...)
		}
		l.once(what, bad)
	}
}

// once starts a relay, lets it try, and ends it.
func (l *leaks) once(what string, bad settings) {
	l.t.Helper()
	l.db.Exec(l.t, `UPDATE jobs SET status = 'ready', run_at = now(), delivered = NULL WHERE kind = 'all'`)
	p := begin(l.t, plain, l.db, l.env.with(bad).with(settings{"DRAIN_TIMEOUT": "3s"}))
	eventually(l.t, what+" shows", func() error {
		select {
		case <-p.ended:
			return nil
		default:
		}
		if code, body := p.get("/readyz"); code == 0 || code == 200 && strings.Contains(body, `"status": "ok"`) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	l.look(p)
	select {
	case <-p.ended:
	default:
		p.terminate(generous)
	}
	l.see(what+": the log of run", p.output())
}

// The admin server listens on the loopback address unless it's told otherwise: nobody else can read it.
func TestAdminIsLoopbackByDefault(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:8321")
	if err == nil { // else another relay has it, and says the same
		defer ln.Close()
	}
	db := testdb.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	cmd := exec.CommandContext(ctx, plain, "run")
	cmd.Env = environ(t, db, settings{"ROUTES": routes("r", []string{"discard:"})})
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "127.0.0.1:8321") {
		t.Errorf("exit %d, want 1 and the address that is taken:\n%s", cmd.ProcessState.ExitCode(), out)
	}
}
