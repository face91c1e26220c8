package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/jobrelay/relay/sinks"
)

// Type is the entry for the list of sinks.
func Type() sinks.Type {
	return sinks.Type{Name: "kafka", Settings: func() sinks.Settings { return new(settings) }}
}

type settings struct {
	Brokers       []string `env:"BROKERS" required:"true" rule:"a list of host:port, separated by commas" help:"Brokers to ask first; the others are found through them. Without a port: 9092."`
	TLS           bool     `env:"TLS" default:"false" help:"Encrypt, TLS 1.2 at least."`
	TLSCA         string   `env:"TLS_CA" rule:"a PEM file's path" help:"Certificates that sign the brokers'; without it the system's."`
	TLSCert       string   `env:"TLS_CERT" rule:"a PEM file's path" help:"Client certificate; read again for each connection, so that it may be renewed in place."`
	TLSKey        string   `env:"TLS_KEY" rule:"a PEM file's path" help:"Key of the client certificate."`
	SASLMechanism string   `env:"SASL_MECHANISM" range:"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512" help:"How to log in; without it there is no login."`
	SASLUsername  string   `env:"SASL_USERNAME" help:"Name to log in with."`
	SASLPassword  string   `env:"SASL_PASSWORD" secret:"true" help:"Password to log in with."`
	Compression   string   `env:"COMPRESSION" default:"lz4" range:"none|gzip|snappy|lz4|zstd" help:"Of record batches; one that wouldn't become smaller is sent as it is."`
	Acks          string   `env:"ACKS" default:"all" range:"all|1" help:"Whose word counts: that of all in-sync replicas, or (a warning) of the leader alone."`
	Partitioner   string   `env:"PARTITIONER" default:"murmur2" range:"murmur2|crc32|fnv1a" help:"Hash of the key: that of Kafka's Java client, of librdkafka or of Sarama. Changing it moves keys to other partitions."`
	MaxInFlight   int      `env:"MAX_IN_FLIGHT" default:"8" range:"1..64" help:"Produce requests, and so connections, at once to each broker."`
}

// Validate checks what one setting alone can't show.
func (s *settings) Validate() []error {
	var found []error
	for _, b := range s.Brokers {
		if err := checkBroker(b); err != nil {
			found = append(found, fmt.Errorf("BROKERS: %w", err))
		}
	}
	if len(s.Brokers) == 0 {
		found = append(found, errors.New("BROKERS: is required: a list of host:port, separated by commas"))
	}
	return append(append(found, s.validateTLS()...), s.validateSASL()...)
}

// checkBroker says what is wrong with one of BROKERS.
func checkBroker(b string) error {
	if strings.Contains(b, "@") { // it isn't shown: a password may be in it
		return errors.New("one of them has an @, and they are host:port; a login has settings of its own, SASL_…")
	}
	host, port, err := net.SplitHostPort(withPort(b))
	if err != nil {
		return fmt.Errorf("%q is not host:port", b)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("the port of %q must be 1 to 65535", b)
	}
	if !hostname.MatchString(host) {
		return fmt.Errorf("%q is not host:port", b)
	}
	return nil
}

// withPort adds Kafka's usual port to a broker without one. A bare IPv6 address has many colons and no brackets.
func withPort(b string) string {
	if ip := net.ParseIP(b); ip != nil {
		return net.JoinHostPort(b, "9092")
	}
	if !strings.Contains(b, ":") || strings.HasSuffix(b, "]") {
		return b + ":9092"
	}
	return b
}

// Warnings names settings that are allowed and unwise.
func (s *settings) Warnings() []string {
	var found []string
	if s.Acks == "1" {
		found = append(found, "ACKS: 1 takes the leader's word alone: jobs that it had accepted are lost when it dies before a replica has them; all is safe")
	}
	if s.SASLMechanism == "PLAIN" && !s.TLS {
		found = append(found, "SASL_MECHANISM: PLAIN without TLS sends the password in clear text")
	}
	return found
}

// CheckAddress says what is wrong with a topic's name.
func (s *settings) CheckAddress(address string) error { return checkTopic(address) }

var (
	hostname = regexp.MustCompile(`^[a-zA-Z0-9._:%-]+$`)
	legal    = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)
)

// checkTopic says whether a topic of that name can exist. Kafka's rule.
func checkTopic(name string) error {
	switch {
	case name == "":
		return errors.New("a topic's name can't be empty")
	case name == "." || name == "..":
		return fmt.Errorf("a topic can't be called %q", name)
	case len(name) > 249:
		return fmt.Errorf("a topic's name has at most 249 characters, this one has %d", len(name))
	case !legal.MatchString(name):
		return fmt.Errorf("a topic's name has letters, digits, dots, underscores and dashes only, not %s", firstIllegal(name))
	}
	return nil
}

// firstIllegal shows one character rather than the name: a key may be in it.
func firstIllegal(name string) string {
	for _, r := range name {
		if !legal.MatchString(string(r)) {
			return strconv.QuoteToASCII(string(r))
		}
	}
	return ""
}

// Open makes the sink.
func (s *settings) Open(name string, log *slog.Logger) (sinks.Sink, error) {
	d, err := s.dialer()
	if err != nil {
		return nil, fmt.Errorf("open kafka sink %s: %w", name, err)
	}
	bootstrap := make([]string, len(s.Brokers))
	for i, b := range s.Brokers {
		bootstrap[i] = withPort(b)
	}
	acks := int16(-1)
	if s.Acks == "1" {
		acks = 1
	}
	return newSink(newCluster(d, bootstrap, s.MaxInFlight), partitioners[s.Partitioner], codecs[s.Compression], acks, log.With("sink", name)), nil
}
