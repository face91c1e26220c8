package main

import "github.com/spf13/cobra"

func keysCommand(a *app) *cobra.Command {
	return group("keys", "List and reopen keys that a dead job holds",
		keysListCommand(a), keysReopenCommand(a))
}

// closes says whether a dead job of the kind holds its key, as far as the routes are known.
func (s *settings) closes(kind string) bool { return s.router == nil || s.router.Closes(kind) }
