// Package stdout is a sink that prints each message as a JSON object on a line of its own.
//
//	{"id":"shop/17","kind":"order.paid","key":"order-5","attempt":1,"time":"2026-03-04T05:06:07.890123Z","headers":{},"payload":{"total": 12}}
//
// The payload is the text that the database gave; a body of opaque bytes is in "body", as base64. "key" is null when
// the job has none. A copy made by a replay has "replay", the id of the copy.
package stdout

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/jobrelay/relay/sinks"
)

// Type is the entry for the list of sinks.
func Type() sinks.Type {
	return sinks.Type{Name: "stdout", Settings: func() sinks.Settings { return &Settings{} }}
}

// Settings has nothing that the environment sets.
type Settings struct {
	Writer io.Writer // where lines go; default os.Stdout
}

// Validate has nothing to check.
func (*Settings) Validate() []error { return nil }

// CheckAddress wants an empty address: there is only one standard output.
func (*Settings) CheckAddress(address string) error {
	if address != "" {
		return fmt.Errorf("stdout takes no address, got %q", address)
	}
	return nil
}

// Open makes the sink.
func (s *Settings) Open(string, *slog.Logger) (sinks.Sink, error) {
	w := s.Writer
	if w == nil {
		w = os.Stdout
	}
	return newSink(s, w), nil
}
