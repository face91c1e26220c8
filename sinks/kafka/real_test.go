package kafka

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
)

// incompressible gives message i a payload that stays as large as it is.
func incompressible(batch []sinks.Message, i, size int) {
	b := make([]byte, size)
	src := rand.NewChaCha8([32]byte{byte(i)})
	_, _ = src.Read(b)
	batch[i].Payload, batch[i].Opaque = b, true
}

// TestB11Oversized: one record over the topic's limit, or over the broker's, and many that exceed it together, all of
// one key: what fits is accepted in this very call, what doesn't is rejected with size and limit.
func TestB11Oversized(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	for _, c := range []struct {
		name  string
		sizes func(i int) int
		n     int
		bad   int
	}{
		{"one over the topic's limit", func(i int) int { return map[bool]int{true: 200_000, false: 1000}[i == 37] }, 100, 37},
		{"one over the broker's limit", func(i int) int { return map[bool]int{true: 2 << 20, false: 1000}[i == 0] }, 100, 0},
		{"together", func(int) int { return 30_000 }, 60, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, broker, 1, "max.message.bytes=100000")
			batch := keyed(messages(topic, c.n), "same")
			good := c.n
			for i := range batch {
				incompressible(batch, i, c.sizes(i))
			}
			results := publish(t, open(t, broker), batch)
			for i, r := range results {
				if i != c.bad {
					want(t, results, i, i+1, sinks.Accepted, sinks.ScopeMessage)
					continue
				}
				good--
				want(t, results, i, i+1, sinks.Rejected, sinks.ScopeMessage)
				if r.Err != nil && !strings.Contains(r.Err.Error(), "100000") {
					t.Errorf("the error should name the limit: %v", r.Err)
				}
			}
			last := -1
			for _, id := range ids(read(t, broker, topic, good)) {
				if n := number(id); n <= last {
					t.Errorf("message %d arrived after %d", n, last)
				} else {
					last = n
				}
			}
		})
	}
}

// TestB13KeysAndPartitions: no key spreads and arrives as null, an empty key is a key, and known keys are where Java's
// client puts them.
func TestB13KeysAndPartitions(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	topic := newTopic(t, broker, 6)
	batch := messages(topic, 1203)
	empty := ""
	for i := 600; i < 1200; i++ {
		batch[i].Key = &empty
	}
	for i, key := range []string{"order-1", "user-42", "TT0124"} {
		batch[1200+i].Key = &key
	}
	accepted(t, publish(t, open(t, broker), batch))
	null, emptied := map[int32]int{}, map[int32]int{}
	for _, r := range read(t, broker, topic, len(batch)) {
		switch {
		case r.Key == nil:
			null[r.Partition]++
		case len(r.Key) == 0:
			emptied[r.Partition]++
		case r.Partition != 4:
			t.Errorf("key %s is in partition %d, want 4", r.Key, r.Partition)
		}
	}
	if len(null) < 4 || len(emptied) != 1 {
		t.Errorf("without a key: %v, want at least 4 partitions; with an empty one: %v, want 1", null, emptied)
	}
}

// TestCodecs: another client reads back what each codec wrote, and checks it.
func TestCodecs(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, broker, 1)
			batch := fill(messages(topic, 200), 700)
			accepted(t, publish(t, open(t, broker, map[string]string{"COMPRESSION": codec}), batch))
			for i, r := range read(t, broker, topic, len(batch)) {
				if !bytes.Equal(r.Value, batch[i].Payload) || received(r).ID != batch[i].ID {
					t.Fatalf("record %d differs", i)
				}
				if age := time.Since(r.Timestamp); age < -time.Minute || age > 5*time.Minute {
					t.Errorf("record %d is of %v, want the time of sending", i, r.Timestamp)
				}
			}
		})
	}
}

// TestCompactedTopic takes no record without a key. The broker says which, and the others get through.
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	topic := newTopic(t, broker, 1, "cleanup.policy=compact")
	batch := keyed(messages(topic, 20), "k")
	batch[3].Key, batch[11].Key = nil, nil
	s := open(t, broker)
	results := publish(t, s, batch)
	for i := range results {
		if i == 3 || i == 11 {
			want(t, results, i, i+1, sinks.Rejected, sinks.ScopeMessage)
		} else {
			want(t, results, i, i+1, sinks.Accepted, sinks.ScopeMessage)
		}
	}
	read(t, broker, topic, 18)
}

// TestOldTimes: the enqueue time is years away, and no topic's limit on timestamps minds.
func TestOldTimes(t *testing.T) {
	t.Parallel()
	broker := services.Kafka(t)
	topic := newTopic(t, broker, 1, "message.timestamp.before.max.ms=600000", "message.timestamp.after.max.ms=600000")
	batch := messages(topic, 2)
	batch[0].Time, batch[1].Time = time.Unix(0, 0), time.Now().AddDate(20, 0, 0)
	accepted(t, publish(t, open(t, broker), batch))
}

func TestLogin(t *testing.T) {
	t.Parallel()
	k := services.KafkaWithSASL(t)
	plain := services.Kafka(t)
	topic := newTopic(t, plain, 2)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		login := func(user, password string) map[string]string {
			return map[string]string{"SASL_MECHANISM": mechanism, "SASL_USERNAME": user, "SASL_PASSWORD": password}
		}
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			s := open(t, k.Addr, login(k.User, k.Password))
			accepted(t, publish(t, s, messages(topic, 10)))
			if err := s.Check(t.Context(), topic); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
		t.Run(mechanism+" wrong password", func(t *testing.T) {
			t.Parallel()
			down(t, open(t, k.Addr, login(k.User, "wr0ng-secret")), topic, "check SASL_USERNAME", "wr0ng-secret")
		})
		t.Run(mechanism+" where there is no login", func(t *testing.T) {
			t.Parallel()
			down(t, open(t, plain, login(k.User, k.Password)), topic, "SASL_MECHANISM", k.Password)
		})
	}
	t.Run("none where there is one", func(t *testing.T) {
		t.Parallel()
		down(t, open(t, k.Addr), topic, "set SASL_MECHANISM", "")
	})
}

// down checks that nothing can be sent, that the whole sink is concerned, and that the reason is given.
func down(t *testing.T, s *sink, topic, why, secret string) {
	t.Helper()
	results := publishIn(t, s, messages(topic, 3), 10*time.Second)
	wantAll(t, results, sinks.Unavailable, sinks.ScopeSink)
	for _, err := range []error{results[0].Err, s.Check(t.Context(), topic), s.Check(t.Context(), "")} {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want it to say %q", err, why)
		} else if secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("the password is shown: %v", err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	k := services.KafkaWithTLS(t)
	plain := services.Kafka(t)
	topic := newTopic(t, plain, 2)
	trust := map[string]string{"TLS": "true", "TLS_CA": k.CA}
	certificate := map[string]string{"TLS_CERT": k.Cert, "TLS_KEY": k.Key}
	for name, s := range map[string]*sink{"server only": open(t, k.Addr, trust), "both sides": open(t, k.MTLS, trust, certificate)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batch := fill(messages(topic, 500), 4000) // more than one TLS record
			accepted(t, publish(t, s, batch))
			if err := s.Check(t.Context(), topic); err != nil {
				t.Errorf("Check: %v", err)
			}
			accepted(t, publish(t, s, batch[:1]))
		})
	}
	other := filepath.Join(t.TempDir(), "other.pem")
	pem, err := os.ReadFile(k.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sink *sink
		why  string
	}{
		"authority unknown":        {open(t, k.Addr, map[string]string{"TLS": "true"}), "set TLS_CA"},
		"another authority":        {open(t, k.Addr, map[string]string{"TLS": "true", "TLS_CA": other}), "set TLS_CA"},
		"TLS to a plain port":      {open(t, plain, trust), "TLS must be false"},
		"plain to a TLS port":      {open(t, k.Addr), "set TLS to true"},
		"certificate is asked for": {open(t, k.MTLS, trust), "TLS_CERT"},
		"name doesn't match":       {open(t, strings.Replace(k.Addr, "127.0.0.1", "127.0.0.2", 1), trust), "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			down(t, c.sink, topic, c.why, "")
		})
	}
}

// TestB17Restart: while the broker is away nothing is unknown and nothing is lost; when it is back, the same sink goes on.
func TestB17Restart(t *testing.T) {
	t.Parallel()
	own := services.OwnKafka(t)
	topic := newTopic(t, own.Addr, 3)
	s := open(t, own.Addr)
	accepted(t, publish(t, s, messages(topic, 30)))
	own.Kill()
	for range 3 {
		wantAll(t, publishIn(t, s, messages(topic, 30), 5*time.Second), sinks.Unavailable, sinks.ScopeSink)
	}
	if err := s.Check(t.Context(), topic); err == nil {
		t.Error("Check finds nothing wrong")
	}
	own.Start()
	until(t, "the check passes", func() bool { return s.Check(t.Context(), topic) == nil })
	accepted(t, publish(t, s, messages(topic, 30)))
	read(t, own.Addr, topic, 60)
}
