package e2e

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// step is a thing to do of a page: a fenced block whose info string has marks behind the language, or a comment
// `<!-- walk: … -->`, which says what the reader does in a way of his own.
//
//	sh run, sql run        run it
//	sh until, sql until    run it until it shows what the next block says
//	sql rollback           run it and take it back
//	sql guard              a condition; TestGuardWrittenOut holds it against relay_owns
//	LANGUAGE file=NAME     write the file
//	text shows             what the step before shows
//	text metrics           wait until the metrics of a relay have these lines
//
// Blocks without marks are for the reader alone. In what is shown … stands for anything, alone on a line for any lines, and
// ~N for a number that is N but for a fifth, or for two.
type step struct {
	line       int
	lang, mark string // "" and what the comment says
	text       string
	shows      string
}

var (
	fence   = regexp.MustCompile("^```([a-z]*) ?(.*)$")
	comment = regexp.MustCompile(`^<!-- walk: (.*) -->$`)
)

// steps reads a page.
func steps(t *testing.T, page string) (all []step) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var open *step
	for i, line := range strings.Split(string(text), "\n") {
		if open == nil {
			if found := comment.FindStringSubmatch(line); found != nil {
				all = append(all, step{line: i + 1, mark: found[1]})
			} else if found := fence.FindStringSubmatch(line); found != nil {
				open = &step{line: i + 1, lang: found[1], mark: found[2]}
			}
			continue
		}
		if line != "```" {
			open.text += line + "\n"
			continue
		}
		switch {
		case open.mark == "shows":
			all[len(all)-1].shows = open.text
		case open.mark != "":
			all = append(all, *open)
		}
		open = nil
	}
	if open != nil {
		t.Fatalf("%s:%d: the block doesn't end", page, open.line)
	}
	return all
}

// differs says how what was shown differs from the page; "" when it doesn't.
func differs(got, want string) string {
	g, w := lines(got), lines(want)
	for len(w) > 0 {
		if w[0] == "…" { // any lines
			for i := range len(g) + 1 {
				if differs(strings.Join(g[i:], "\n"), strings.Join(w[1:], "\n")) == "" {
					return ""
				}
			}
			return fmt.Sprintf("nothing like %q in %q", strings.Join(w[1:], "\n"), got)
		}
		if len(g) == 0 {
			return fmt.Sprintf("no line for %q", w[0])
		}
		if !fits(g[0], w[0]) {
			return fmt.Sprintf("got %q, want %q", g[0], w[0])
		}
		g, w = g[1:], w[1:]
	}
	if len(g) > 0 {
		return fmt.Sprintf("a line more: %q", g[0])
	}
	return ""
}

// lines are those that aren't empty or rules, with single spaces.
func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); strings.Trim(line, "-+") != "" {
			out = append(out, line)
		}
	}
	return out
}

var placeholder = regexp.MustCompile(`…|~[0-9]+`)

// fits says whether a line is what the page has.
func fits(got, want string) bool {
	var pattern strings.Builder
	var about []float64
	last := 0
	for _, at := range placeholder.FindAllStringIndex(want, -1) {
		pattern.WriteString(regexp.QuoteMeta(want[last:at[0]]))
		last = at[1]
		if text := want[at[0]:at[1]]; text == "…" {
			pattern.WriteString(`.*?`)
		} else {
			n, _ := strconv.ParseFloat(text[1:], 64)
			about = append(about, n)
			pattern.WriteString(`([0-9.]+)`)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(want[last:]))
	found := regexp.MustCompile(`^` + pattern.String() + `$`).FindStringSubmatch(got)
	if found == nil {
		return false
	}
	for i, n := range about {
		if x, err := strconv.ParseFloat(found[i+1], 64); err != nil || math.Abs(x-n) > max(2, n/5) {
			return false
		}
	}
	return true
}

// A page is compared as its reader would.
func TestPagePlaceholders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got, want string
		same      bool
	}{
		{"a  b\n", "a b", true},
		{"a b", "a", false},
		{"a\nb", "a", false},
		{"a", "a\nb", false},
		{"mail 5 % 12 / 240 4.8 %", "mail 5 % … / … ~5 %", true},
		{"mail 5 % 12 / 240 8.1 %", "mail 5 % … / … ~5 %", false},
		{"mail 5 % 12 / 240 -", "mail 5 % … / … ~5 %", false},
		{"x 61", "x ~50", false},
		{"x 41.5", "x ~50", true},
		{"a\nb\nc\nd", "a\n…\nd", true},
		{"a\nb\nc\nd", "a\n…\ne", false},
		{"a\nd", "a\n…\nd", true},
		{"count\n-----\n0", "count\n0", true},
		{"a.c", "abc", false},
	} {
		if got := differs(c.got, c.want) == ""; got != c.same {
			t.Errorf("%q against %q: the same: %t, want %t", c.got, c.want, got, c.same)
		}
	}
}
