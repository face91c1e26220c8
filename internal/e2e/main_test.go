package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
	if err := errors.Join(build(binary, "-race"), build(plain)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func build(out string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", out, "github.com/jobrelay/relay/cmd/relay")
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build relay: %w\n%s", err, text)
	}
	return nil
}
