package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is an edit that breaks a promise.
type mutant struct {
	name    string // what is wrong with the edited program
	promise string // P1 to P10, as docs/guarantees.md has them
	pkg     string // whose tests must kill it
	tests   string // which of them: names joined by |, or one name and its subtest as Test/subtest
	file    string // from the root of the module
	old     string // what is there, exactly once
	new     string // what is put in its place
}

// mutants are all of them, by the room in which something goes wrong.
func mutants() []mutant {
	return slices.Concat(inSettling(), inClaiming(), inOrder(), inEngine(), inKafka(), inRabbitMQ(), inSQS(), inTable(), inText())
}

// edited returns the file with the edit. It refuses when the text isn't there exactly once: then the list is out of date.
func (m mutant) edited(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s: %s has the text to replace %d times, want once:\n%s", m.name, m.file, n, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// pattern is the tests as -test.run wants them, each name whole.
func (m mutant) pattern() string {
	levels := strings.Split(m.tests, "/")
	for i, names := range levels {
		levels[i] = "^(" + names + ")$"
	}
	return strings.Join(levels, "/")
}

// functions are the names of the test functions.
func (m mutant) functions() []string {
	first, _, _ := strings.Cut(m.tests, "/")
	return strings.Split(first, "|")
}
