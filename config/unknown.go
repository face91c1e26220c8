package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Section is a settings struct and the prefix of its variables.
type Section struct {
	Prefix   string // "RELAY_KAFKA_"
	Settings any    // the struct or a pointer to it; only its tags are read
}

// Unknown returns a warning for each variable that begins with RELAY_ and is no setting of the relay or of one of the
// sections. What container platforms set by themselves for a service called relay, or relay-kafka, is left out.
func Unknown(env Environ, sections ...Section) []string {
	known := map[string]string{}
	var warnings []string
	for _, name := range variables() {
		known[name] = prefix
	}
	for _, s := range append([]Section{{prefix, Config{}}}, sections...) {
		for _, f := range fields(s.Prefix, s.Settings) {
			if other, ok := known[f.name]; ok && other != s.Prefix {
				warnings = append(warnings, fmt.Sprintf("%s belongs to two sinks: %s… and %s…; choose other names in RELAY_SINKS", f.name, other, s.Prefix))
			}
			known[f.name] = s.Prefix
			if f.secret {
				known[f.name+"_FILE"] = s.Prefix
			}
		}
	}
	for name, value := range env {
		if _, ok := known[name]; !ok && strings.HasPrefix(name, prefix) && !injected(name, value) {
			warnings = append(warnings, fmt.Sprintf("%s is not a setting of relay%s", name, suggestion(name, known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

var (
	serviceVariable = regexp.MustCompile(`_SERVICE_(HOST$|PORT($|_))`)
	portVariable    = regexp.MustCompile(`_PORT_[0-9]+_`)
	portURL         = regexp.MustCompile(`^(tcp|udp)://`)
)

// injected tells the variables by which container platforms announce services, and those of the project's own tests.
func injected(name, value string) bool {
	return strings.HasPrefix(name, prefix+"TEST_") || serviceVariable.MatchString(name) || portVariable.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && portURL.MatchString(value)
}

// suggestion names the setting that was probably meant, if one is close.
func suggestion(name string, known map[string]string) string {
	best, least := "", 3
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance counts the letters to change, add or drop (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
