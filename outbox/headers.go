package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ownPrefix begins the names that the relay writes itself, in any case.
const ownPrefix = "relay-"

// fillHeaders writes the headers as a JSON object.
func (r *row) fillHeaders(headers map[string]any) *InvalidError {
	if len(headers) == 0 {
		return nil
	}
	text := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		if rule := nameRule(name); rule != "" {
			return invalidAt("headers", shorten(name), rule)
		}
		value, rule := headerValue(headers[name])
		if rule != "" {
			return invalidAt("headers", shorten(name), rule)
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(appendString(text, name), ':')
		text = append(text, value...)
	}
	whole := string(append(text, '}'))
	if len(whole) > MaxPayload {
		return invalid("headers", nil, "must be at most "+inBytes(MaxPayload)+" in all")
	}
	r.headers = &whole
	return nil
}

func nameRule(name string) string {
	if rule := textRule(name, 1, MaxHeaderName); rule != "" {
		return "the name " + rule
	}
	if len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix) {
		return "the name must not begin with relay-: those are the relay's own"
	}
	return ""
}

// headerValue encodes a value by what it is underneath: an application's own string and number types will do, and no
// method of theirs runs. A time.Duration is its nanoseconds.
func headerValue(value any) (text []byte, rule string) {
	if number, ok := value.(json.Number); ok {
		return numberHeader(string(number))
	}
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return nil, "the value must not be nil: leave the header out"
	case v.Kind() == reflect.String:
		if rule := textRule(v.String(), 0, MaxPayload); rule != "" {
			return nil, "the value " + rule
		}
		return appendString(nil, v.String()), ""
	case v.Kind() == reflect.Bool:
		return strconv.AppendBool(nil, v.Bool()), ""
	case v.CanInt():
		return strconv.AppendInt(nil, v.Int(), 10), ""
	case v.CanUint() && v.Kind() != reflect.Uintptr:
		return strconv.AppendUint(nil, v.Uint(), 10), ""
	case v.CanFloat():
		if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			return nil, "the value must be a finite number"
		}
		return strconv.AppendFloat(nil, v.Float(), 'g', -1, v.Type().Bits()), ""
	}
	return nil, fmt.Sprintf("the value must be a string, boolean or number, not %T", value)
}

func numberHeader(text string) ([]byte, string) {
	if text == "" || !json.Valid([]byte(text)) || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return nil, "the value must be a JSON number"
	}
	if _, rule := numberRule(text); rule != "" {
		return nil, "the value " + rule
	}
	return []byte(text), ""
}

// appendString appends a string, known to be valid UTF-8, as JSON without escapes for HTML.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ':
			to = fmt.Appendf(to, `\u%04x`, c)
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}
