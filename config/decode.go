package config

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/sethvargo/go-envconfig"
)

// Decode fills a struct, given by pointer, from the variables whose names begin with prefix ("RELAY_KAFKA_"), as its
// tags say. It returns all problems at once. What can't be decoded keeps its value.
func Decode(env Environ, prefix string, settings any) Problems {
	var found Problems
	value := reflect.ValueOf(settings).Elem()
	for _, f := range fields(prefix, settings) {
		found = append(found, f.decode(env, value.Field(f.index))...)
	}
	if v, ok := settings.(interface{ Validate() []error }); ok && len(found) == 0 {
		for _, err := range v.Validate() {
			name, text, _ := strings.Cut(err.Error(), ": ")
			found = append(found, problemHidden(prefix+name, "%s", text))
		}
	}
	return found
}

// decode sets the struct field from its variable, its file or its default.
func (f *field) decode(env Environ, into reflect.Value) Problems {
	text, source, found := f.lookup(env)
	if len(found) > 0 {
		return found
	}
	if f.typ.Kind() == reflect.Slice {
		text = strings.Join(parts(text), ",")
	}
	if text == "" {
		if f.required {
			return Problems{problemHidden(f.name, "is required: %s", f.allowed(true))}
		}
		return nil
	}
	value, err := f.parse(text)
	if err != nil {
		return Problems{f.broken(source, text)}
	}
	into.Set(value)
	return nil
}

// broken words what is wrong with a value that came from the variable called source.
func (f *field) broken(source, text string) Problem {
	if f.secret {
		return problemHidden(source, "must be %s (its value is secret and isn't shown)", f.allowed(true))
	}
	return problem(source, text, "must be %s", f.allowed(true))
}

// lookup returns the setting's text, "" when it has none, and the variable that it came from.
func (f *field) lookup(env Environ) (text, source string, found Problems) {
	text, set := env.get(f.name)
	if !f.secret {
		if !set {
			text = f.text
		}
		return strings.TrimSpace(text), f.name, nil
	}
	fileName := f.name + "_FILE"
	path, fromFile := env.get(fileName)
	switch {
	case set && fromFile:
		return "", "", Problems{problem(fileName, path, "is set together with %s; keep one", f.name)}
	case set:
		return text, f.name, nil
	case fromFile:
		text, found = readFile(fileName, path)
		return strings.TrimRight(text, "\r\n"), fileName, found
	}
	return f.text, f.name, nil
}

// parse turns text into the field's value, or says that it breaks the field's rule.
func (f *field) parse(text string) (reflect.Value, error) {
	if f.zero != "" && strings.EqualFold(text, f.zero) {
		return reflect.Zero(f.typ), nil
	}
	value, err := f.convert(text)
	if err != nil {
		return value, err
	}
	if f.low == "" {
		return value, nil
	}
	low, err := f.convert(f.low)
	f.must(err == nil, "the range begins with a value that it doesn't take")
	high, err := f.convert(f.high)
	f.must(err == nil, "the range ends with a value that it doesn't take")
	if value.Int() < low.Int() || value.Int() > high.Int() {
		return value, fmt.Errorf("outside %s to %s", f.low, f.high)
	}
	return value, nil
}

// convert decodes one text. The library decodes a whole struct and stops at the first error; a struct of this one
// field at a time gives all of them.
func (f *field) convert(text string) (reflect.Value, error) {
	text, err := f.canonical(text)
	if err != nil {
		return reflect.Value{}, err
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Value", Type: f.typ, Tag: `env:"VALUE"`}}))
	err = envconfig.ProcessWith(context.Background(), &envconfig.Config{
		Target:   one.Interface(),
		Lookuper: envconfig.MapLookuper(map[string]string{"VALUE": text}),
	})
	return one.Elem().Field(0), err
}

// canonical rewrites what people may write into what the library reads as we mean it.
func (f *field) canonical(text string) (string, error) {
	switch {
	case len(f.words) > 0:
		for _, word := range f.words {
			if strings.EqualFold(text, word) {
				return word, nil
			}
		}
		return "", fmt.Errorf("not one of %s", list(f.words, "and"))
	case f.match != nil && !f.match.MatchString(text):
		return "", fmt.Errorf("doesn't match %s", f.match)
	case f.bytes:
		size, err := humanize.ParseBytes(text)
		return strconv.FormatUint(size, 10), err
	case f.whole(): // the library takes 010 for 8
		n, err := strconv.ParseInt(text, 10, 64)
		return strconv.FormatInt(n, 10), err
	}
	return text, nil
}

// parts splits a list at its commas, without spaces and without empty parts.
func parts(text string) []string {
	var found []string
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			found = append(found, part)
		}
	}
	return found
}
