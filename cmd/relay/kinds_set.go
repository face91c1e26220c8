package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/outbox"
	"github.com/spf13/cobra"
)

func kindsSetCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "set KIND SHARE",
		Short: "Let relays own a share of a kind, 0 to 100 per cent of its keys",
		Long: `Let relays own SHARE per cent (0 to 100) of the keys of one kind; all other keys belong to the other workers of the
table, whose claims say AND NOT relay_owns(kind, key, id). A key is never split, and a job without a key counts as one.

It holds at once, without a restart: the command ends when every claim that had begun before has ended (it waits three
seconds at most, and warns of transactions that are still open then). Jobs that are being worked on stay with whoever has
claimed them; their retries go to whoever owns them then. A kind that nobody has enqueued yet may be given its share.

KIND is one kind, not a pattern; a star that is part of its name is written with a backslash before it.`,
		Example: "relay kinds set mail.welcome 25     # a quarter of the keys\nrelay kinds set mail.welcome 0      # all of it back",
		Args:    cobra.ExactArgs(2),
	}
	asJSON := jsonFlag(c, "the kind and its shares")
	c.SetFlagErrorFunc(negativeShare)
	c.RunE = func(c *cobra.Command, args []string) error {
		kind, err := kindArgument(args[0])
		if err != nil {
			return err
		}
		share, err := shareArgument(args[1])
		if err != nil {
			return err
		}
		return a.withStore(c.Context(), func(s *settings, store *claim.Store) error {
			sw, err := store.SetShare(c.Context(), kind, share)
			if err != nil {
				return err
			}
			if len(sw.Older) > 0 {
				s.log.Warn("transactions that began before are still open: what they claim may go by the share of before",
					"kind", kind, "processes", sw.Older)
			}
			s.warnShare(kind, share)
			return a.printSwitch(kind, share, sw, *asJSON)
		})
	}
	return c
}

// kindArgument reads KIND.
func kindArgument(text string) (string, error) {
	if strings.Contains(strings.ReplaceAll(text, `\*`, ""), "*") {
		return "", usagef(`KIND %q: must be one kind, not a pattern (a star that is part of its name is written \*)`, text)
	}
	kind := strings.ReplaceAll(text, `\*`, "*")
	if kind == "" || len(kind) > outbox.MaxKind || !utf8.ValidString(kind) {
		return "", usagef("KIND %q: must be 1 to %d bytes of UTF-8", kind, outbox.MaxKind)
	}
	return kind, nil
}

// shareArgument reads SHARE.
func shareArgument(text string) (int, error) {
	share, err := strconv.ParseUint(text, 10, 7)
	if err != nil || share > 100 {
		return 0, badShare(text)
	}
	return int(share), nil
}

func badShare(text string) error {
	return usagef("SHARE %q: must be a whole number from 0 to 100", text)
}

// negativeShare words the error about a share that looks like a flag.
func negativeShare(_ *cobra.Command, err error) error {
	var unknown interface{ GetSpecifiedShortnames() string }
	if errors.As(err, &unknown) {
		if text := unknown.GetSpecifiedShortnames(); text != "" && strings.Trim(text, "0123456789.") == "" {
			return badShare("-" + text)
		}
	}
	return err
}

func (a *app) printSwitch(kind string, share int, sw claim.Switch, asJSON bool) error {
	if asJSON {
		line := struct {
			Kind  string `json:"kind"`
			Was   *int   `json:"was"` // null: the kind is new
			Share int    `json:"share"`
		}{kind, &sw.Was, share}
		if sw.New {
			line.Was = nil
		}
		return printJSON(a.stdout, line)
	}
	was := fmt.Sprintf("share was %d", sw.Was)
	if sw.New {
		was = "new, had no share"
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s, is %d\n", printable(kind), was, share)
	return err
}
