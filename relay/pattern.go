package relay

import "fmt"

// pattern is a kind pattern: literal bytes and stars.
type pattern []patternToken

type patternToken struct {
	star bool
	c    byte
}

// compilePattern reads a kind pattern: * is any run of bytes, also none; \* is a star and \\ a backslash.
func compilePattern(s string) (pattern, error) {
	if s == "" {
		return nil, fmt.Errorf("kind: must not be empty")
	}
	var p pattern
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '*':
			if len(p) == 0 || !p[len(p)-1].star {
				p = append(p, patternToken{star: true})
			}
		case s[i] == '\\':
			if i+1 == len(s) || (s[i+1] != '*' && s[i+1] != '\\') {
				return nil, fmt.Errorf(`kind: a backslash stands before * or \ only`)
			}
			i++
			p = append(p, patternToken{c: s[i]})
		default:
			p = append(p, patternToken{c: s[i]})
		}
	}
	return p, nil
}

// exact returns the one kind that fits, when there is only one.
func (p pattern) exact() (kind string, ok bool) {
	b := make([]byte, len(p))
	for i, t := range p {
		if t.star {
			return "", false
		}
		b[i] = t.c
	}
	return string(b), true
}

// matches says whether the whole kind fits.
func (p pattern) matches(kind string) bool {
	return glob(p, len(kind), func(i int, t patternToken) bool { return kind[i] == t.c })
}

// covers says whether everything that other matches is matched by p too. A star of other is covered by a star only.
func (p pattern) covers(other pattern) bool {
	return glob(p, len(other), func(i int, t patternToken) bool { return !other[i].star && other[i].c == t.c })
}

// glob matches p against n symbols in linear space, going back to the last star when a literal doesn't fit.
func glob(p pattern, n int, fits func(i int, t patternToken) bool) bool {
	at, i, star, from := 0, 0, -1, 0
	for i < n {
		switch {
		case at < len(p) && p[at].star:
			star, from = at, i
			at++
		case at < len(p) && fits(i, p[at]):
			at++
			i++
		case star >= 0:
			from++
			at, i = star+1, from
		default:
			return false
		}
	}
	for at < len(p) && p[at].star {
		at++
	}
	return at == len(p)
}
