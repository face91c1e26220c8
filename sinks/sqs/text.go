package sqs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

// sendable says whether SQS takes a text as it is: valid UTF-8 of tab, line feed, carriage return, and everything from
// the space on but the surrogates, U+FFFE and U+FFFF.
func sendable[T string | []byte](text T) bool {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			i++
			continue
		}
		r, n := decode(text[i:])
		if (r == utf8.RuneError && n == 1) || r == '\ufffe' || r == '\uffff' {
			return false
		}
		i += n
	}
	return true
}

func decode[T string | []byte](text T) (rune, int) {
	switch t := any(text).(type) {
	case string:
		return utf8.DecodeRuneInString(t)
	case []byte:
		return utf8.DecodeRune(t)
	}
	return utf8.RuneError, 1
}

// noncharacters are what SQS refuses and JSON text may hold, inside strings only, where an escape is the same value.
var noncharacters = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// marshal writes JSON that SQS takes.
func marshal(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return noncharacters.Replace(strings.TrimSuffix(b.String(), "\n")), nil
}

var (
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	plainID       = regexp.MustCompile(`^[!-~]{1,128}$`)
)

const longestAttributeName = 256

// nameable says whether SQS takes a name for an attribute: no dot at an end or beside another, no prefix of its own.
func nameable(name string) bool {
	lower := strings.ToLower(name)
	return len(name) <= longestAttributeName && attributeName.MatchString(name) &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

// plain is a group or deduplication id that SQS takes: the text itself, or its SHA-256.
func plain(id string) string {
	if plainID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
