// Package config turns the environment into settings. It knows no broker.
//
//	env := config.OS()
//	cfg, problems, warnings := config.Load(env, config.Need{DatabaseURL: true, Routes: true})
//	problems = append(problems, config.Decode(env, "RELAY_KAFKA_", &kafkaSettings)...)
//	warnings = append(warnings, config.Unknown(env, config.Section{Prefix: "RELAY_KAFKA_", Settings: &kafkaSettings})...)
//	if len(problems) > 0 {
//		// print one line each, exit 2
//	}
//
// Every setting is a struct field, and one walk over its tags serves decoding, ranges, secrets from files, the
// report of unknown variables and the tables in docs/configuration.md. The tags:
//
//	env:"LEASE"            name of the variable, without the prefix; a field without it isn't a setting
//	default:"1m"           what an unset variable means, as a user would write it; without it the zero value
//	shown:"database name"  default in the docs, where it is found out later than here
//	required:"true"        an unset variable is a problem
//	range:"1s..24h"        lowest and highest, for whole numbers, durations and sizes
//	range:"all|1"          the words that are allowed; their case doesn't matter, the field gets them as they stand here
//	unit:"bytes"           a whole number that is written as a size: 512KiB, 8MiB, 1GB, 1000
//	zero:"never"           the word for the zero value, beside the range
//	rule:"a file's path"   in words, for problems and docs, what no range can say: "must be …"
//	match:"^[a-z]+$"       an expression that the text must match; wants a rule
//	secret:"true"          never shown; may come from the file that NAME_FILE names, less its last line break
//	help:"…"               one sentence or two for the docs, in Markdown
//
// Fields are strings, booleans, whole numbers, [time.Duration], slices of them (separated by commas, spaces around
// them and empty parts don't count), and whatever has UnmarshalText. An empty variable counts as unset, as deployment
// tools can't always leave one out. Whole numbers are decimal, also with leading zeros. A struct that is in order may
// check relations between its fields in a method Validate() []error; each error begins with the setting's name
// without the prefix: "TLS_KEY: is needed with TLS_CERT".
//
// A malformed tag is a mistake of the program and panics.
package config
