// Package label turns kinds, which applications choose, into values of a metric's label.
package label

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// MaxKinds bounds the kinds that are labels; those seen first keep theirs, all others share Other.
const (
	MaxKinds = 200
	Other    = "_other"
)

// Kinds gives kinds their label and remembers which have one. The zero value is ready, for many goroutines.
type Kinds struct {
	mu    sync.Mutex
	known map[string]bool
}

// Of returns the label of a kind, and whether it is new. A database in SQL_ASCII takes any bytes, a label only UTF-8: kinds
// that differ in other bytes share one.
func (k *Kinds) Of(kind string) (label string, first bool) {
	kind = strings.ToValidUTF8(kind, "\uFFFD")
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.known[kind]:
		return kind, false
	case len(k.known) >= MaxKinds:
		return Other, false
	case k.known == nil:
		k.known = map[string]bool{}
	}
	k.known[kind] = true
	return kind, true
}

// Known lists the labels given so far but Other, sorted.
func (k *Kinds) Known() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.known))
}
