package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// field is one setting: a struct field and what its tags say.
type field struct {
	name     string // of the variable, with its prefix
	index    int    // in the struct
	typ      reflect.Type
	text     string // its default, as a user would write it
	shown    string
	zero     string
	rule     string
	help     string
	match    *regexp.Regexp
	words    []string // the only ones allowed
	low      string   // of the range, as a user would write it
	high     string
	required bool
	secret   bool
	bytes    bool
}

// fields walks over the tags of a settings struct or a pointer to one.
func fields(prefix string, settings any) []field {
	typ := reflect.TypeOf(settings)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	var found []field
	for i := range typ.NumField() {
		if name := typ.Field(i).Tag.Get("env"); name != "" {
			found = append(found, newField(prefix+name, i, typ.Field(i)))
		}
	}
	return found
}

func newField(name string, index int, sf reflect.StructField) field {
	tag := sf.Tag
	f := field{
		name: name, index: index, typ: sf.Type,
		text: tag.Get("default"), shown: tag.Get("shown"), zero: tag.Get("zero"),
		rule: tag.Get("rule"), help: tag.Get("help"),
		required: tag.Get("required") == "true",
		secret:   tag.Get("secret") == "true",
		bytes:    tag.Get("unit") == "bytes",
	}
	if expr := tag.Get("match"); expr != "" {
		f.match = regexp.MustCompile(expr)
		f.must(f.rule != "", "match wants a rule")
	}
	if limits := tag.Get("range"); limits != "" {
		low, high, ok := strings.Cut(limits, "..")
		if ok {
			f.low, f.high = low, high
			f.must(f.measured(), "a range wants a whole number, a duration or a size")
		} else {
			f.words = strings.Split(limits, "|")
		}
	}
	f.must(f.bytes == (tag.Get("unit") != ""), "the only unit is bytes")
	f.must(sf.IsExported(), "must be exported")
	return f
}

func (f *field) must(ok bool, why string) {
	if !ok {
		panic(fmt.Sprintf("config: tags of %s: %s", f.name, why))
	}
}

var (
	durationType    = reflect.TypeFor[time.Duration]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (f *field) duration() bool { return f.typ == durationType }

// whole tells a plain whole number from the types that only are one underneath.
func (f *field) whole() bool {
	return reflect.Int <= f.typ.Kind() && f.typ.Kind() <= reflect.Int64 &&
		!f.duration() && !reflect.PointerTo(f.typ).Implements(textUnmarshaler)
}

func (f *field) measured() bool { return f.whole() || f.duration() }

// allowed says what a value has to be, as the end of "must be …", with an example or without.
func (f *field) allowed(example bool) string {
	rule := f.form(example)
	if f.low != "" {
		rule += fmt.Sprintf(" from %s to %s", f.low, f.high)
	}
	if f.zero != "" {
		rule = f.zero + ", or " + rule
	}
	return rule
}

func (f *field) form(example bool) string {
	noun, such := "text", ""
	switch {
	case f.rule != "":
		noun = f.rule
	case len(f.words) > 0:
		noun = list(f.words, "or")
	case f.bytes:
		noun, such = "a size", " such as 512KiB or 8MiB"
	case f.duration():
		noun, such = "a duration", " such as 500ms, 30s or 5m"
	case f.whole():
		noun = "a whole number"
	case f.typ.Kind() == reflect.Bool:
		noun = "true or false"
	}
	if !example {
		return noun
	}
	return noun + such
}

// list joins words as a sentence does.
func list(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + " " + last + " " + words[end]
}
