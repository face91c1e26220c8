package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// prefix begins the name of every variable of ours.
const prefix = "RELAY_"

// longestFile bounds what is read from the files that variables name.
const longestFile = 1 << 20

// Environ holds variables by name.
type Environ map[string]string

// OS returns the process's environment.
func OS() Environ {
	env := Environ{}
	for _, pair := range os.Environ() {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

// get returns a variable's value; one that is empty or blank counts as unset.
func (e Environ) get(name string) (string, bool) {
	value := e[name]
	return value, strings.TrimSpace(value) != ""
}

// readFile returns the text of the file that the variable name names.
func readFile(name, path string) (string, Problems) {
	file, err := os.Open(path)
	if err != nil {
		return "", Problems{problem(name, path, "%v", bare(err))}
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, longestFile+1))
	switch {
	case err != nil:
		return "", Problems{problem(name, path, "%v", bare(err))}
	case len(text) > longestFile:
		return "", Problems{problem(name, path, "the file is longer than 1MiB")}
	case strings.TrimSpace(string(text)) == "":
		return "", Problems{problem(name, path, "the file is empty")}
	}
	return string(text), nil
}

// bare takes the path from a file error: the problem shows it already.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
