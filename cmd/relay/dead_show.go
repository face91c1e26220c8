package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func deadShowCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead job with its headers and payload",
		Args:  cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(c, "the job")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return usagef("%q isn't a job's id", args[0])
		}
		return a.withStore(c.Context(), func(_ *settings, store *claim.Store) error {
			d, ok, err := store.GetDead(c.Context(), id)
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("there is no dead job %d", id)
			}
			if *asJSON {
				return printJSON(a.stdout, newWholeDeadJob(d))
			}
			return a.showDead(d)
		})
	}
	return c
}

// wholeDeadJob is a dead job with its content as JSON. A number in it keeps its digits.
type wholeDeadJob struct {
	deadJob
	Headers json.RawMessage `json:"headers"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Body    []byte          `json:"body,omitempty"` // base64
}

func newWholeDeadJob(d claim.DeadJob) wholeDeadJob {
	w := wholeDeadJob{deadJob: newDeadJob(d), Headers: json.RawMessage(d.Headers), Payload: json.RawMessage(d.Payload), Body: d.Body}
	if len(w.Headers) == 0 {
		w.Headers = json.RawMessage("null")
	}
	return w
}

func (a *app) showDead(d claim.DeadJob) error {
	t := table(a.stdout)
	row := func(name, value string) { _, _ = fmt.Fprintf(t, "%s\t%s\n", name, value) }
	row("id", strconv.FormatInt(d.ID, 10))
	if d.ReplayOf != nil {
		row("copy of", strconv.FormatInt(*d.ReplayOf, 10))
	}
	row("kind", printable(d.Kind))
	row("key", key(d.Key))
	row("attempts", fmt.Sprintf("%d of %d", d.Attempts, d.MaxAttempts))
	row("enqueued", printTime(d.CreatedAt))
	row("died", printTime(d.FinishedAt))
	row("delivered to", orDash(strings.Join(d.Delivered, ", ")))
	row("last error", printable(d.LastError))
	row("headers", orDash(printable(string(d.Headers))))
	if d.Payload != nil {
		row("payload", printable(string(d.Payload)))
	} else {
		row("body", fmt.Sprintf("%d bytes, base64: %s", len(d.Body), base64.StdEncoding.EncodeToString(d.Body)))
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
