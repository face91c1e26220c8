// Package testlog is for tests: a log that may be read while it is written.
package testlog

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Buffer keeps what is written to it. Its zero value is empty and ready, and many may use it at once.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the text. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count says how often a text stands in it.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// Logger writes to it, a line for each record from level INFO.
func (b *Buffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
