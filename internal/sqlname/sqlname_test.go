package sqlname

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Table{
		"jobs":            {"", "jobs"},
		"Jobs":            {"", "Jobs"},
		"app.jobs":        {"app", "jobs"},
		`"a.b".jobs`:      {"a.b", "jobs"},
		`app."a ""b"".c"`: {"app", `a "b".c`},
		"öffentlich.a b":  {"öffentlich", "a b"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q): got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, rule := range map[string]string{
		"":                     "must not be empty",
		".jobs":                "must not be empty",
		"jobs.":                "must not be empty",
		"a.b.c":                "3 names",
		`"a`:                   "doesn't end",
		`"a"b`:                 "after a closing quote",
		"a\x00b":               "control characters",
		`app."a\` + "\n" + `"`: "control characters",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("Parse(%q): got %v, want %s", text, err, rule)
		}
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"jobs": `"jobs"`, `app."a""b"`: `"app"."a""b"`} {
		at, err := Parse(text)
		if err != nil || at.Quoted() != want {
			t.Errorf("%s: got %s, %v, want %s", text, at.Quoted(), err, want)
		}
	}
}
