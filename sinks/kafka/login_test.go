package kafka

import (
	"strings"
	"testing"

	"github.com/jobrelay/relay/config"
)

// TestLoginThatCannotBeSent is refused before anything starts, by a text that has nothing of it.
func TestLoginThatCannotBeSent(t *testing.T) {
	t.Parallel()
	scram := []string{"SCRAM-SHA-256", "SCRAM-SHA-512"}
	for what, c := range map[string]struct {
		value      string
		mechanisms []string
	}{
		"tab":                {"CANARY\tx", scram},
		"carriage return":    {"CANARY\rx", scram},
		"line break":         {"CANARY\nx", scram},
		"emoji":              {"CANARY\U0001F511", scram},
		"both directions":    {"CANARY\u05d0", scram},
		"private use":        {"CANARY\ue000", scram},
		"delete":             {"CANARY\x7f", scram},
		"no UTF-8":           {"CANARY\xff", append(scram, "PLAIN")},
		"NUL":                {"CANARY\x00x", append(scram, "PLAIN")},
		"a broken surrogate": {"CANARY\xed\xa0\x80", append(scram, "PLAIN")},
	} {
		for _, mechanism := range c.mechanisms {
			for _, name := range []string{"SASL_USERNAME", "SASL_PASSWORD"} {
				env := config.Environ{"RELAY_KAFKA_BROKERS": "a", "RELAY_KAFKA_SASL_MECHANISM": mechanism, "RELAY_KAFKA_SASL_USERNAME": "u", "RELAY_KAFKA_SASL_PASSWORD": "p"}
				env["RELAY_KAFKA_"+name] = c.value
				s := new(settings)
				text := config.Decode(env, "RELAY_KAFKA_", s).Error()
				if !strings.HasPrefix(text, "RELAY_KAFKA_"+name+":") || strings.Count(text, "RELAY_KAFKA_SASL_") != 1 {
					t.Errorf("%s, %s: got %q, want a problem of %s", mechanism, what, text, name)
				}
				_, err := s.Open("kafka", testLog(t)) // whoever doesn't validate
				if err == nil {
					t.Errorf("%s, %s: %s opens", mechanism, what, name)
				} else if text += err.Error(); strings.Contains(text, "CANARY") {
					t.Errorf("%s, %s: it is shown: %q", mechanism, what, text)
				}
			}
		}
	}
}

// TestLogins are those that are taken.
func TestLogins(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		for _, password := range []string{"p", " a,b=c ", "pässwörd", "\u05d0\u05d1", "秘密"} {
			s := load(t, map[string]string{"BROKERS": "a", "SASL_MECHANISM": mechanism, "SASL_USERNAME": "u,=", "SASL_PASSWORD": password})
			if openSettings(t, s).cluster.dialer.login == nil {
				t.Errorf("%s with %q: no login", mechanism, password)
			}
		}
	}
}

// TestBrokerWithALogin shows nothing of it: a URL in its place may hold a password.
func TestBrokerWithALogin(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{"kafka://u:CANARY@h:1", "u:CANARY@h:1", "u:CANARY@h", "CANARY@h:x", "CANARY@h:1"} {
		env := config.Environ{"RELAY_KAFKA_BROKERS": broker}
		if text := config.Decode(env, "RELAY_KAFKA_", new(settings)).Error(); !strings.HasPrefix(text, "RELAY_KAFKA_BROKERS:") || strings.Contains(text, "CANARY") {
			t.Errorf("%s: got %q", broker, text)
		}
	}
}
