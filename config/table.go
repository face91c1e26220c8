package config

import (
	"fmt"
	"strings"
)

// Table describes a section's settings as a Markdown table, for docs/configuration.md.
func Table(s Section) string {
	var b strings.Builder
	b.WriteString("| variable | default | allowed | |\n| --- | --- | --- | --- |\n")
	for _, f := range fields(s.Prefix, s.Settings) {
		name := "`" + f.name + "`"
		if f.secret {
			name += " (secret)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(name), cell(f.byDefault()), cell(f.allowed(false)), cell(f.help))
	}
	return b.String()
}

// byDefault says what an unset variable means.
func (f *field) byDefault() string {
	switch {
	case f.shown != "":
		return f.shown
	case f.required:
		return "required"
	case f.text != "":
		return "`" + f.text + "`"
	default:
		return "none"
	}
}

// cell keeps text from ending its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
