package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobrelay/relay/internal/stage"
)

// binary is the relay under test, built once: with the race detector, and plain where memory is measured.
var binary, plain string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "relay-e2e-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary, plain = filepath.Join(dir, "relay-race"), filepath.Join(dir, "relay")
	code := 1
	if err := errors.Join(stage.Build(binary, "-race"), stage.Build(plain)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
