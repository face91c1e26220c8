package config

import (
	"fmt"
	"log/slog"
)

// Secret is a string that prints as *** whichever way it's printed or encoded. Convert it, string(s), to use it.
type Secret string

const masked = "***"

// String hides the value.
func (Secret) String() string { return masked }

// Format hides the value from every verb of package fmt: String alone would not stop %d, which shows what it refuses.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// LogValue hides the value from structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText hides the value from JSON, YAML and their like.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// GoString hides the value from whoever calls it directly; fmt uses Format.
func (Secret) GoString() string { return masked }
