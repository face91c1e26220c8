package outbox

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner walks over a text that is known to be JSON and finds what jsonb refuses: NUL, lone surrogates, invalid
// UTF-8, numbers beyond numeric, and too many levels. encoding/json either takes these or changes them silently.
type scanner struct {
	text    []byte
	pos     int
	size    int  // of the numbers, written out as jsonb does: 1e400 has 401 digits
	encoded bool // the encoder wrote the text, so the escape \ufffd stands for bytes that it couldn't write
}

// fault is a broken rule and the steps to it, innermost first.
type fault struct {
	rule  string
	steps []string
}

func (f *fault) from(step string) *fault {
	if f != nil {
		f.steps = append(f.steps, step)
	}
	return f
}

// longestPlace bounds a path in bytes.
const longestPlace = 200

// place writes the path from the outermost step.
func (f *fault) place() string {
	var b strings.Builder
	b.WriteByte('$')
	for i := len(f.steps) - 1; i >= 0; i-- {
		if b.Len()+len(f.steps[i]) > longestPlace {
			return b.String() + "…"
		}
		b.WriteString(f.steps[i])
	}
	return b.String()
}

func (s *scanner) value(depth int) *fault {
	s.space()
	switch s.text[s.pos] {
	case '{', '[':
		if depth == maxDepth {
			return &fault{rule: fmt.Sprintf("must have at most %d levels of arrays and objects", maxDepth)}
		}
		if s.text[s.pos] == '{' {
			return s.object(depth + 1)
		}
		return s.array(depth + 1)
	case '"':
		_, rule := s.string()
		return ruleFault(rule)
	case 't', 'n':
		s.pos += len("true")
	case 'f':
		s.pos += len("false")
	default:
		return ruleFault(s.number())
	}
	return nil
}

func ruleFault(rule string) *fault {
	if rule == "" {
		return nil
	}
	return &fault{rule: rule}
}

func (s *scanner) object(depth int) *fault {
	for s.pos++; ; s.pos++ { // past the brace, then past each comma
		s.space()
		if s.text[s.pos] == '}' {
			s.pos++
			return nil
		}
		name, rule := s.string()
		if rule != "" {
			return &fault{rule: "a member's name " + rule}
		}
		s.space()
		s.pos++ // colon
		if f := s.value(depth); f != nil {
			return f.from(memberStep(name))
		}
		s.space()
		if s.text[s.pos] == '}' {
			s.pos++
			return nil
		}
	}
}

func (s *scanner) array(depth int) *fault {
	for i := 0; ; i++ {
		s.pos++ // the bracket, then each comma
		s.space()
		if s.text[s.pos] == ']' {
			s.pos++
			return nil
		}
		if f := s.value(depth); f != nil {
			return f.from("[" + strconv.Itoa(i) + "]")
		}
		s.space()
		if s.text[s.pos] == ']' {
			s.pos++
			return nil
		}
	}
}

func (s *scanner) space() {
	for strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.pos++
	}
}

// string passes a string and returns what stands between its quotes, with the rule that it breaks.
func (s *scanner) string() (inner []byte, rule string) {
	start := s.pos + 1
	for s.pos = start; s.text[s.pos] != '"'; s.pos++ {
		if s.text[s.pos] != '\\' {
			continue
		}
		s.pos++
		if s.text[s.pos] == 'u' && rule == "" {
			rule = s.escape()
		}
	}
	inner = s.text[start:s.pos]
	s.pos++
	if rule == "" && !utf8.Valid(inner) {
		rule = "must be valid UTF-8"
	}
	return inner, rule
}

// escape passes the digits of \uXXXX, and a second escape that makes a pair with it. It ends on the last digit.
func (s *scanner) escape() string {
	code := s.hex()
	switch {
	case code == 0:
		return `must not hold \u0000, which Postgres can't store`
	case code == utf8.RuneError && s.encoded:
		return "must be valid UTF-8"
	case code < 0xD800 || code > 0xDFFF:
		return ""
	}
	if code < 0xDC00 && s.text[s.pos+1] == '\\' && s.text[s.pos+2] == 'u' {
		s.pos += 2
		if low := s.hex(); low >= 0xDC00 && low <= 0xDFFF {
			return ""
		}
	}
	return "must not hold half a surrogate pair, which Postgres can't store"
}

// hex reads the four digits after the u that the position is on, and moves to the last of them.
func (s *scanner) hex() uint64 {
	code, _ := strconv.ParseUint(string(s.text[s.pos+1:s.pos+5]), 16, 32)
	s.pos += 4
	return code
}

func (s *scanner) number() string {
	start := s.pos
	for s.pos < len(s.text) && strings.IndexByte("+-.eE0123456789", s.text[s.pos]) >= 0 {
		s.pos++
	}
	size, rule := numberRule(string(s.text[start:s.pos]))
	s.size += size
	return rule
}

// Limits of the type numeric, which jsonb keeps numbers in.
const (
	mostWhole    = 131072 // digits before the decimal point
	mostDecimals = 16383  // digits after it
)

const numberLimits = "must be a number of at most 131072 digits before the decimal point and 16383 after it"

// numberRule says how long a JSON number is when it's written out, and which limit of numeric it breaks.
func numberRule(text string) (size int, rule string) {
	digits, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, decimals, _ := strings.Cut(digits, ".")
	shift := 0
	if exponent != "" {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil || shift < -mostWhole || shift > 2*mostWhole {
			return 0, numberLimits
		}
	}
	first := len(whole) // digits before the point, counted from the first that isn't zero
	if whole == "0" {
		first = len(strings.TrimLeft(decimals, "0")) - len(decimals)
	}
	scale := max(0, len(decimals)-shift)
	if strings.Trim(digits, "0.") != "" && first+shift > mostWhole || scale > mostDecimals {
		return 0, numberLimits
	}
	return max(len(text), first+shift) + scale, ""
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// longestName bounds what a path repeats of a member's name.
const longestName = 40

// memberStep writes .name, or ["name"] as the JSON has it.
func memberStep(name []byte) string {
	if len(name) > longestName {
		return `["` + strings.ToValidUTF8(string(name[:longestName]), "") + `…"]`
	}
	if plainName.Match(name) {
		return "." + string(name)
	}
	return `["` + string(name) + `"]`
}
