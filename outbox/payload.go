package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// encodePayload returns the payload's JSON text, checked for what jsonb takes.
func encodePayload(payload any) (string, *InvalidError) {
	text, own := payload.(json.RawMessage)
	if !own {
		if _, ok := payload.([]byte); ok {
			return "", invalid("payload", nil, "must not be []byte: use json.RawMessage for JSON text, or body for other bytes")
		}
		encoded, err := encode(payload)
		if err != nil {
			bad := invalid("payload", nil, encoderRule(err))
			bad.Err = err
			return "", bad
		}
		text = encoded
	}
	if len(text) > MaxPayload {
		return "", invalid("payload", nil, "is "+inBytes(len(text))+" of JSON, must be at most "+inBytes(MaxPayload))
	}
	if bad := checkJSON(text, !own); bad != nil {
		return "", bad
	}
	return string(text), nil
}

func encode(payload any) ([]byte, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(payload); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(text.String(), "\n")), nil
}

// encoderRule words the encoder's refusal. What a type's own MarshalJSON says may repeat the payload.
func encoderRule(err error) string {
	var (
		marshaler *json.MarshalerError
		typ       *json.UnsupportedTypeError
	)
	switch {
	case errors.As(err, &marshaler):
		return fmt.Sprintf("must be encodable as JSON: the method of %s fails", marshaler.Type)
	case errors.As(err, &typ):
		return fmt.Sprintf("must be encodable as JSON, which %s is not", typ.Type)
	default:
		return "must be encodable as JSON: it holds NaN, an infinity or a cycle"
	}
}

// checkJSON says what is wrong with the text for jsonb. encoded tells that encoding/json has just written it.
func checkJSON(text []byte, encoded bool) *InvalidError {
	if len(text) == 0 {
		return invalid("payload", nil, "must be JSON, not empty; for no payload leave it nil")
	}
	if !json.Valid(text) {
		return invalidAt("payload", syntaxPlace(text), "must be valid JSON")
	}
	s := scanner{text: text, encoded: encoded}
	if f := s.value(0); f != nil {
		return invalidAt("payload", f.place(), f.rule)
	}
	if s.size > MaxPayload {
		return invalid("payload", nil, "must be at most "+inBytes(MaxPayload)+" with its numbers written out")
	}
	return nil
}

// syntaxPlace says where the text stops being JSON.
func syntaxPlace(text []byte) string {
	var syntax *json.SyntaxError
	var into json.RawMessage
	if errors.As(json.Unmarshal(text, &into), &syntax) {
		return fmt.Sprintf("byte %d", syntax.Offset)
	}
	return ""
}
