package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, problems, warnings := Load(with(nil), all)
	if len(problems)+len(warnings) > 0 {
		t.Fatalf("problems %v, warnings %v", problems, warnings)
	}
	url := Secret("postgres://u:s3cr3t@127.0.0.1:5432/shop")
	want := &Config{
		DatabaseURL: url, ListenURL: url, DatabaseConnections: 10, Table: "jobs", Workers: 4, BatchSize: 500, BatchBytes: 8 << 20,
		Lease: time.Minute, PublishTimeout: 20 * time.Second, PollMin: 5 * time.Millisecond, PollMax: time.Second,
		RetryBase: 10 * time.Second, RetryMax: time.Hour, Retention: 24 * time.Hour, DrainTimeout: 25 * time.Second,
		AdminAddr: "127.0.0.1:8321", LogLevel: slog.LevelInfo,
		Routes: []Route{{Kind: "a", To: []string{"discard:"}, Order: "none"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	got, problems, warnings := Load(with(map[string]string{
		"DATABASE_URL": "postgres://h/a", "DATABASE_CONNECTIONS": "020", "LISTEN_URL": "off", "TABLE": "shop.jobs", "SOURCE": "shop-1", "WORKERS": "8",
		"BATCH_SIZE": "1", "BATCH_BYTES": "1.5MiB", "LEASE": "90s", "PUBLISH_TIMEOUT": "30s", "POLL_MIN": "1ms", "POLL_MAX": "2s", "RETRY_BASE": "1s",
		"RETRY_MAX": "1m", "RETENTION": "0", "RETENTION_DEAD": "720h", "DRAIN_TIMEOUT": "10s", "MIGRATE": "true", "ADMIN_ADDR": "off", "LOG_LEVEL": "Debug",
		"LOG_FORMAT": "text", "SINKS": " kafka-eu:kafka, ,kafka_us:kafka",
		"ROUTES": "- kind: o\n  to: [kafka-eu:a, \"sqs:b\"]\n  order: key\n  share: 25\n- {kind: p, to: ['discard:'], order: key, dead: skip, share: 0}",
	}), all)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "RELAY_DRAIN_TIMEOUT") {
		t.Errorf("got warnings %q, want one about RELAY_DRAIN_TIMEOUT being less than RELAY_PUBLISH_TIMEOUT", warnings)
	}
	quarter, none := 25, 0
	want := &Config{
		DatabaseURL: "postgres://h/a", DatabaseConnections: 20, Table: "shop.jobs", Source: "shop-1", Workers: 8, BatchSize: 1, BatchBytes: 3 << 19,
		Lease: 90 * time.Second, PublishTimeout: 30 * time.Second, PollMin: time.Millisecond, PollMax: 2 * time.Second, RetryBase: time.Second,
		RetryMax: time.Minute, RetentionDead: 720 * time.Hour, DrainTimeout: 10 * time.Second, Migrate: true, LogLevel: slog.LevelDebug, LogFormat: "text",
		Sinks: []SinkName{{"kafka-eu", "kafka"}, {"kafka_us", "kafka"}},
		Routes: []Route{
			{Kind: "o", To: []string{"kafka-eu:a", "sqs:b"}, Order: "key", Dead: "close", Share: &quarter},
			{Kind: "p", To: []string{"discard:"}, Order: "key", Dead: "skip", Share: &none},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestNeedsDecideWhatIsRequired(t *testing.T) {
	t.Parallel()
	if _, problems, _ := Load(Environ{}, Need{}); len(problems) > 0 {
		t.Errorf("nothing needed: got %v", problems)
	}
	if _, problems, _ := Load(Environ{}, all); len(problems) != 2 {
		t.Errorf("both needed: got %v", problems)
	}
	if _, problems, _ := Load(Environ{"RELAY_ROUTES": "x"}, Need{}); len(problems) != 1 {
		t.Errorf("routes that aren't needed and wrong: got %v, want a problem", problems)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good", "postgres://u:s3cr3t@h/x\r\n"), write("bad", "postgres://u:s3cr3t@h:bad/x\n")

	cfg, problems, _ := Load(Environ{"RELAY_DATABASE_URL_FILE": good}, Need{DatabaseURL: true})
	if len(problems) > 0 || cfg.DatabaseURL != "postgres://u:s3cr3t@h/x" || cfg.ListenURL != cfg.DatabaseURL {
		t.Errorf("got %q, %q, problems %v", string(cfg.DatabaseURL), string(cfg.ListenURL), problems)
	}
	for _, c := range []struct {
		env  Environ
		want string
	}{
		{Environ{"RELAY_DATABASE_URL_FILE": bad}, "RELAY_DATABASE_URL_FILE: isn't a Postgres URL"},
		{Environ{"RELAY_DATABASE_URL_FILE": dir + "/none"}, `RELAY_DATABASE_URL_FILE="` + dir + `/none": no such file or directory`},
		{Environ{"RELAY_DATABASE_URL_FILE": good, "RELAY_DATABASE_URL": "postgres://h"}, "RELAY_DATABASE_URL_FILE=\"" + good + `": is set together with RELAY_DATABASE_URL; keep one`},
		{Environ{"RELAY_DATABASE_URL": "postgres://h", "RELAY_LISTEN_URL_FILE": bad}, "RELAY_LISTEN_URL_FILE: isn't a Postgres URL"},
	} {
		_, problems, _ := Load(c.env, Need{DatabaseURL: true})
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Text, c.want) || strings.Contains(problems[0].Text, "s3cr3t") {
			t.Errorf("%v: got %v, want %s", c.env, problems, c.want)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	const value = "hunter2"
	secret := Secret(value)
	holder := struct {
		S Secret
		P *Secret
		L []Secret
	}{secret, &secret, []Secret{secret}}
	var printed strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T%t", "% x", "%10.2s"} {
		fmt.Fprintf(&printed, verb, secret)
		fmt.Fprintf(&printed, verb, holder)
		fmt.Fprintf(&printed, verb, &holder)
		fmt.Fprintf(&printed, verb, map[Secret]Secret{secret: secret})
	}
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	printed.Write(text)
	slog.New(slog.NewTextHandler(&printed, nil)).Info("x", "s", secret, "h", holder)
	slog.New(slog.NewJSONHandler(&printed, nil)).Info("x", "s", secret, "h", holder)
	printed.WriteString(secret.String() + secret.GoString())
	hex := fmt.Sprintf("%x", value)
	for _, leak := range []string{value, hex, strings.ToUpper(hex), "68 75", "104 117"} {
		if strings.Contains(printed.String(), leak) {
			t.Errorf("%q leaks into %s", leak, printed.String())
		}
	}
	if string(secret) != value {
		t.Error("a secret can't be used")
	}
}

// brokerSettings are what a sink's settings look like.
type brokerSettings struct {
	Brokers  []string      `env:"BROKERS" required:"true" rule:"a list of host:port" help:"Where to begin."`
	TLS      bool          `env:"TLS" help:"Encrypt."`
	Key      string        `env:"TLS_KEY"`
	Cert     string        `env:"TLS_CERT"`
	Password Secret        `env:"PASSWORD" secret:"true"`
	Plain    string        `env:"PLAIN" secret:"true" match:"^[a-z]*$" rule:"lower-case letters"`
	Acks     string        `env:"ACKS" default:"all" range:"all|1"`
	Window   int32         `env:"WINDOW" default:"256" range:"1..4096"`
	MaxBytes int           `env:"MAX_BYTES" default:"1MiB" unit:"bytes" range:"1KiB..1MiB"`
	Wait     time.Duration `env:"WAIT" zero:"off" default:"off" range:"1s..1m"`
	internal int
}

func (s *brokerSettings) Validate() []error {
	if (s.Key == "") != (s.Cert == "") {
		return []error{fmt.Errorf("TLS_KEY: is needed with TLS_CERT: %s", "both or none")}
	}
	return nil
}

func TestDecodeSinkSettings(t *testing.T) {
	t.Parallel()
	env := Environ{"RELAY_X_BROKERS": "a:1, b:2,,", "RELAY_X_TLS": "true", "RELAY_X_PASSWORD": " p,w=$HOME ", "RELAY_X_ACKS": "ALL", "HOME": "/root"}
	got := brokerSettings{Window: 7, internal: 1}
	if problems := Decode(env, "RELAY_X_", &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := brokerSettings{Brokers: []string{"a:1", "b:2"}, TLS: true, Password: " p,w=$HOME ", Acks: "all", Window: 256, MaxBytes: 1 << 20, internal: 1}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v\nwant %#v", got, want)
	}
}

func TestDecodeProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value, want string
	}{
		{"BROKERS", " , ,", `RELAY_X_BROKERS: is required: a list of host:port`},
		{"BROKERS", "", `RELAY_X_BROKERS: is required: a list of host:port`},
		{"ACKS", "0", `RELAY_X_ACKS="0": must be all or 1`},
		{"WINDOW", "4097", `RELAY_X_WINDOW="4097": must be a whole number from 1 to 4096`},
		{"WINDOW", "3000000000", `RELAY_X_WINDOW="3000000000": must be a whole number from 1 to 4096`},
		{"WAIT", "0", `RELAY_X_WAIT="0": must be off, or a duration such as 500ms, 30s or 5m from 1s to 1m`},
		{"PLAIN", "S3CR3T", `RELAY_X_PLAIN: must be lower-case letters (its value is secret and isn't shown)`},
		{"TLS_CERT", "c.pem", `RELAY_X_TLS_KEY: is needed with TLS_CERT: both or none`},
	} {
		env := Environ{"RELAY_X_BROKERS": "a:1", "RELAY_X_" + c.name: c.value}
		if got := Decode(env, "RELAY_X_", &brokerSettings{}).Error(); got != c.want {
			t.Errorf("%s=%q:\n got %s\nwant %s", c.name, c.value, got, c.want)
		}
	}
}

func TestMalformedTagsPanic(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]any{
		"range of text": struct {
			A string `env:"A" range:"1..2"`
		}{},
		"match without rule": struct {
			A string `env:"A" match:"x"`
		}{},
		"unit": struct {
			A int `env:"A" unit:"bits"`
		}{},
		"a field that's dark": struct {
			a int `env:"A"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			fields("", settings)
		}()
	}
}

func TestB30Unknown(t *testing.T) {
	t.Parallel()
	env := with(map[string]string{
		"LAESE": "1m", "LEASE_FILE": "x", "KAFKA_BROKRES": "x", "FROBNICATION_LEVEL": "9", "PORT": "8080", "DATABASE_URL_FILE": "f", "X_PASSWORD_FILE": "f", "X_PLAIN": "p",
		"KAFKA_BROKERS": "a:1", "ROUTES_FILE": "f",
	})
	for _, name := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_80_TCP", "PORT_80_TCP_ADDR", "KAFKA_SERVICE_HOST", "KAFKA_PORT_9092_TCP_PROTO"} {
		env["RELAY_"+name] = "10.0.0.1"
	}
	env["RELAY_KAFKA_PORT"], env["OTHER"], env["RELAYED"] = "udp://10.0.0.1:80", "x", "x"
	got := Unknown(env, Section{"RELAY_KAFKA_", brokerSettings{}}, Section{"RELAY_X_", &brokerSettings{}})
	want := []string{
		"RELAY_FROBNICATION_LEVEL is not a setting of relay",
		"RELAY_KAFKA_BROKRES is not a setting of relay; did you mean RELAY_KAFKA_BROKERS?",
		"RELAY_LAESE is not a setting of relay; did you mean RELAY_LEASE?",
		"RELAY_LEASE_FILE is not a setting of relay",
		"RELAY_PORT is not a setting of relay",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	env = Environ{"RELAY_PORT": "tcp://10.0.0.1:80"}
	if got := Unknown(env); len(got) > 0 {
		t.Errorf("a container platform's RELAY_PORT: got %q", got)
	}
}

func TestVariableOfTwoSinks(t *testing.T) {
	t.Parallel()
	type other struct {
		Key string `env:"KEY"`
	}
	got := Unknown(Environ{}, Section{"RELAY_KAFKA_", brokerSettings{}}, Section{"RELAY_KAFKA_TLS_", other{}})
	if len(got) != 1 || !strings.Contains(got[0], "RELAY_KAFKA_TLS_KEY belongs to two sinks") {
		t.Errorf("got %q, want a warning about RELAY_KAFKA_TLS_KEY", got)
	}
}
