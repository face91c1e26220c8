package config

import (
	"fmt"
	"strings"
)

// Problem is one setting that can't work.
type Problem struct {
	Name string // the variable
	Text string // one line: the variable, its value unless it's secret, and the rule that it breaks
}

// Problems are all that is wrong with the settings, an error with a line for each.
type Problems []Problem

// Error gives one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Text
	}
	return strings.Join(lines, "\n")
}

// longestValue is how much of a value a problem repeats.
const longestValue = 80

// problem words a problem of a variable whose value may be shown.
func problem(name, value, format string, args ...any) Problem {
	return Problem{name, fmt.Sprintf("%s=%s: %s", name, quote(value), fmt.Sprintf(format, args...))}
}

// problemHidden words a problem without the variable's value: it's secret, long, or there is none.
func problemHidden(name, format string, args ...any) Problem {
	return Problem{name, name + ": " + fmt.Sprintf(format, args...)}
}

// quote puts a value on one line of bounded length.
func quote(value string) string {
	if len(value) > longestValue {
		return fmt.Sprintf("%q…", value[:longestValue])
	}
	return fmt.Sprintf("%q", value)
}
