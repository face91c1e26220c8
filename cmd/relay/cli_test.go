package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

const cliPage = "../../docs/cli.md"

// TestCLIPage keeps docs/cli.md the same as the commands' own help.
func TestCLIPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	page.WriteString("# Command line\n\n")
	root := newRoot(&app{})
	root.InitDefaultHelpFlag()
	page.WriteString(root.Long + "\n\nThis page is made from the commands' own help (`go test ./cmd/relay -run CLIPage -update`).\n" +
		"`relay completion SHELL` prints a completion script for bash, zsh, fish or PowerShell.\n")
	for _, c := range root.Commands() {
		describe(&page, c)
	}
	if *update {
		if err := os.WriteFile(cliPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(cliPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page.Bytes()) {
		t.Error("docs/cli.md isn't what the commands say: go test ./cmd/relay -run CLIPage -update")
	}
}

func describe(w *bytes.Buffer, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if !c.HasSubCommands() {
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(w, "\n## relay %s\n\n%s\n", strings.TrimPrefix(c.CommandPath(), "relay "), text)
		fmt.Fprintf(w, "\n```\n%s\n", c.UseLine())
		if flags := strings.TrimRight(c.Flags().FlagUsages(), "\n"); flags != "" {
			fmt.Fprintf(w, "\n%s\n", flags)
		}
		w.WriteString("```\n")
		if c.Example != "" {
			fmt.Fprintf(w, "\n```\n%s\n```\n", c.Example)
		}
	}
	for _, sub := range c.Commands() {
		describe(w, sub)
	}
}
