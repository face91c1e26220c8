package kafka

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/config"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := load(t, map[string]string{"BROKERS": "a, b:1,[::1]:2"})
	if s.Acks != "all" || s.Compression != "lz4" || s.Partitioner != "murmur2" || s.MaxInFlight != 8 || s.TLS || len(s.Warnings()) > 0 {
		t.Errorf("got %+v", s)
	}
	if got := openSettings(t, s); !slices.Equal(got.cluster.bootstrap, []string{"a:9092", "b:1", "[::1]:2"}) || got.acks != -1 {
		t.Errorf("brokers %v, acks %d", got.cluster.bootstrap, got.acks)
	}
}

func openSettings(t *testing.T, s *settings) *sink {
	t.Helper()
	opened, err := s.Open("kafka", testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSink(t, opened) })
	return opened.(*sink)
}

func TestB30Mistakes(t *testing.T) {
	t.Parallel()
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, want string }{
		{"", "RELAY_KAFKA_BROKERS"}, {"BROKERS=:1", "RELAY_KAFKA_BROKERS"}, {"BROKERS=a:b", "port"}, {"BROKERS=a:0", "65535"}, {"BROKERS=a:65536", "65535"},
		{"BROKERS=kafka://a:1", "host:port"}, {"BROKERS=a:1:2", "host:port"}, {"BROKERS=a~b:1", "host:port"},
		{"BROKERS=a ACKS=0", "RELAY_KAFKA_ACKS"}, {"BROKERS=a ACKS=-1", "RELAY_KAFKA_ACKS"}, {"BROKERS=a COMPRESSION=brotli", "RELAY_KAFKA_COMPRESSION"},
		{"BROKERS=a PARTITIONER=md5", "RELAY_KAFKA_PARTITIONER"}, {"BROKERS=a MAX_IN_FLIGHT=0", "RELAY_KAFKA_MAX_IN_FLIGHT"},
		{"BROKERS=a TLS_CA=x", "needs TLS"}, {"BROKERS=a TLS=true TLS_CA=/nowhere", "/nowhere"}, {"BROKERS=a TLS=true TLS_CA=" + junk, "no PEM certificate"},
		{"BROKERS=a TLS=true TLS_CERT=" + junk, "RELAY_KAFKA_TLS_KEY"}, {"BROKERS=a TLS=true TLS_KEY=" + junk, "RELAY_KAFKA_TLS_CERT"},
		{"BROKERS=a TLS=true TLS_KEY=" + junk + " TLS_CERT=" + junk, "RELAY_KAFKA_TLS_CERT"},
		{"BROKERS=a SASL_MECHANISM=GSSAPI", "RELAY_KAFKA_SASL_MECHANISM"}, {"BROKERS=a SASL_MECHANISM=PLAIN", "RELAY_KAFKA_SASL_USERNAME"},
		{"BROKERS=a SASL_MECHANISM=PLAIN SASL_USERNAME=u", "RELAY_KAFKA_SASL_PASSWORD"}, {"BROKERS=a SASL_PASSWORD=hunter2", "RELAY_KAFKA_SASL_MECHANISM"},
	} {
		env := config.Environ{}
		for setting := range strings.FieldsSeq(c.env) {
			name, value, _ := strings.Cut(setting, "=")
			env["RELAY_KAFKA_"+name] = value
		}
		text := config.Decode(env, "RELAY_KAFKA_", new(settings)).Error()
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: got %q, want it to mention %s", c.env, text, c.want)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s: the password is shown", c.env)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := load(t, map[string]string{"BROKERS": "a", "ACKS": "1", "SASL_MECHANISM": "plain", "SASL_USERNAME": "u", "SASL_PASSWORD": "p"})
	got := strings.Join(s.Warnings(), "\n")
	if !strings.HasPrefix(got, "ACKS: ") || !strings.Contains(got, "\nSASL_MECHANISM: ") {
		t.Errorf("got %q", got)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	s := new(settings)
	long := strings.Repeat("x", 249)
	for _, a := range []string{"orders", "Orders.v1_x-2", "a", long, "...", ".a"} {
		if err := s.CheckAddress(a); err != nil {
			t.Errorf("%q: %v", a, err)
		}
	}
	for _, a := range []string{"", ".", "..", "a/b", "a b", "ä", "a\x00", "\xff", long + "x", "{", "{kind}", "orders:1"} {
		if err := s.CheckAddress(a); err == nil {
			t.Errorf("%q: no error", a)
		}
	}
}
