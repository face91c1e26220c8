package sqs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/jobrelay/relay/sinks"
)

// Type is the entry for the list of sinks.
func Type() sinks.Type {
	return sinks.Type{Name: "sqs", Settings: func() sinks.Settings { return &Settings{} }}
}

// Settings of one SQS endpoint. Credentials come from AWS's default chain (its usual variables, files and roles).
type Settings struct {
	Endpoint string `env:"ENDPOINT" shown:"AWS's endpoint of the region" rule:"an http or https URL" match:"^https?://[^/\\s]+" help:"URL of the SQS endpoint, for a server of your own or a private link."`
	Region   string `env:"REGION" shown:"AWS's usual variables and files; us-east-1 with an endpoint" rule:"a region's name" match:"^[a-z0-9-]+$" help:"AWS region of the queues."`
	MaxBytes int    `env:"MAX_BYTES" default:"1MiB" range:"1KiB..1MiB" unit:"bytes" help:"Largest message, and largest call of up to ten messages, attributes included. A queue's own lower limit (MaximumMessageSize) counts as well, where it may be read."`
	Parallel int    `env:"PARALLEL" default:"16" range:"1..256" help:"Calls in flight at once, of up to ten messages each."`
}

// Limits and defaults of SQS, for settings that weren't decoded from the environment.
const (
	defaultMaxBytes = 1 << 20
	defaultParallel = 16
)

// Validate wants no login in the endpoint: a URL is shown, and requests are signed.
func (s *Settings) Validate() []error {
	if u, err := url.Parse(s.Endpoint); err != nil || u.User != nil {
		return []error{errors.New("ENDPOINT: must be a URL without a user: credentials are those of AWS's variables and files")}
	}
	return nil
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)

const longestQueueName = 80

// CheckAddress wants a queue's name or URL.
func (s *Settings) CheckAddress(address string) error {
	name := address
	if isURL(address) {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") == "" {
			return fmt.Errorf("sqs: %q is no queue's URL", address)
		}
		name = address[strings.LastIndexByte(strings.TrimRight(address, "/"), '/')+1:]
	}
	if !queueName.MatchString(name) || len(name) > longestQueueName {
		return fmt.Errorf("sqs: %q is no queue's name: 1 to %d letters, digits, - and _, with .fifo at the end of a FIFO queue's", address, longestQueueName)
	}
	return nil
}

func isURL(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}

// isFIFO goes by the name, as SQS does.
func isFIFO(address string) bool { return strings.HasSuffix(address, ".fifo") }

// Open makes the sink. It reads AWS's files and variables, and connects to nothing.
func (s *Settings) Open(name string, log *slog.Logger) (sinks.Sink, error) {
	settings := *s
	if settings.MaxBytes == 0 {
		settings.MaxBytes = defaultMaxBytes
	}
	if settings.Parallel == 0 {
		settings.Parallel = defaultParallel
	}
	log = log.With("sink", name)
	c, err := newClient(settings, log)
	if err != nil {
		return nil, fmt.Errorf("sqs: %s: %w", name, err)
	}
	return newSink(settings, c, log), nil
}
