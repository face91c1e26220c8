package config

import (
	"errors"
	"regexp"
	"strings"
)

// SinkName names one sink of RELAY_SINKS.
type SinkName struct{ Name, Type string }

var sinkName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

// UnmarshalText reads name:type.
func (s *SinkName) UnmarshalText(text []byte) error {
	name, typ, ok := strings.Cut(string(text), ":")
	name, typ = strings.TrimSpace(name), strings.TrimSpace(typ)
	if !ok || !sinkName.MatchString(name) || typ == "" {
		return errors.New("must be name:type")
	}
	s.Name, s.Type = name, typ
	return nil
}

// SinkPrefix begins the variables of the sink with this name: RELAY_KAFKA_EU_ for kafka-eu.
func SinkPrefix(name string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// checkSinkNames refuses names whose variables would be somebody else's.
func checkSinkNames(sinks []SinkName) Problems {
	var found Problems
	taken := map[string]string{}
	for _, s := range sinks {
		own := SinkPrefix(s.Name)
		if other, ok := taken[own]; ok {
			found = append(found, problem("RELAY_SINKS", s.Name, "must differ from %s: the variables of both begin with %s", quote(other), own))
		}
		taken[own] = s.Name
		for _, name := range variables() {
			if strings.HasPrefix(name+"_", own) {
				found = append(found, problem("RELAY_SINKS", s.Name, "can't be a sink's name: %s is a setting of the relay", name))
				break
			}
		}
	}
	return found
}
