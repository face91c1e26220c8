package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/outbox"
	"github.com/spf13/cobra"
)

func enqueueCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "enqueue {--kind K (--payload JSON | --body-file F) | -}",
		Short: "Enqueue one job by flags, or many from standard input",
		Long: `Enqueue one job by flags and print its id, or, with -, a job for each line of standard input: an object with kind,
key, headers, payload or body (base64), run_at, priority, max_attempts. All lines go in one transaction: a line that
can't be a job refuses all. The ids are printed in the order of the lines.`,
		Example: `  relay enqueue --kind order.created --key order-17 --payload '{"id": 17}'
  relay enqueue --kind report --body-file report.pdf --header content-type=application/pdf --run-at +10m
  relay enqueue - < jobs.ndjson`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := addJobFlags(c)
	asJSON := jsonFlag(c, "an object per id")
	c.RunE = func(c *cobra.Command, args []string) error {
		fill, err := a.jobs(c, args, flags)
		if err != nil {
			return err
		}
		return a.enqueue(c.Context(), *asJSON, fill)
	}
	return c
}

// adder takes some more jobs into the transaction.
type adder func(...outbox.Job) error

// jobs returns what gives the jobs: the flags, or standard input.
func (a *app) jobs(c *cobra.Command, args []string, flags *jobFlags) (func(context.Context, adder) error, error) {
	if len(args) == 0 {
		job, err := flags.job(c)
		return func(_ context.Context, add adder) error { return flagError(add(job)) }, err
	}
	if args[0] != "-" {
		return nil, usagef("unknown argument %q; - reads standard input", args[0])
	}
	for name := range flags.names {
		if c.Flags().Changed(name) {
			return nil, usagef("--%s can't be used with -, whose lines say everything", name)
		}
	}
	return func(ctx context.Context, add adder) error {
		in := readerUntil(ctx, a.stdin)
		defer func() { _ = in.Close() }()
		return readJobs(in, add)
	}, nil
}

// enqueue inserts the jobs that fill gives in one transaction and prints their ids once it is committed.
func (a *app) enqueue(ctx context.Context, asJSON bool, fill func(context.Context, adder) error) error {
	s, err := a.load(config.Need{DatabaseURL: true})
	if err != nil {
		return err
	}
	conn, err := connect(ctx, string(s.DatabaseURL))
	if err != nil {
		return explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var ids []int64
	client := outbox.Client{Table: s.Table}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return fill(ctx, func(jobs ...outbox.Job) error {
			got, err := client.Enqueue(ctx, tx, jobs...)
			ids = append(ids, got...)
			return err
		})
	})
	if err != nil {
		return explain(err)
	}
	for _, id := range ids {
		if err := a.printID(id, asJSON); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printID(id int64, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, map[string]int64{"id": id})
	}
	_, err := fmt.Fprintln(a.stdout, id)
	return err
}

// jobFlags are a job's columns as flags.
type jobFlags struct {
	names       map[string]bool // of the flags
	kind, key   string
	headers     []string
	runAt       timeFlag
	priority    int
	maxAttempts int
	payload     string
	bodyFile    string
}

func addJobFlags(c *cobra.Command) *jobFlags {
	f := &jobFlags{names: map[string]bool{}}
	flags := c.Flags()
	flags.StringVar(&f.kind, "kind", "", "the job's kind, which routes match")
	flags.StringVar(&f.key, "key", "", "ordering and partition key")
	flags.StringArrayVar(&f.headers, "header", nil, "a header name=value, its value text (may be repeated)")
	flags.Var(&f.runAt, "run-at", "when it is due: RFC 3339, +2h for in two hours, 2h for two hours ago (default now)")
	flags.IntVar(&f.priority, "priority", 0, "the larger goes first within the kind")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "tries that count before it is dead (default the table's)")
	flags.StringVar(&f.payload, "payload", "", "JSON; its digits never change")
	flags.StringVar(&f.bodyFile, "body-file", "", "a file to send byte for byte, instead of a payload")
	for _, name := range []string{"kind", "key", "header", "run-at", "priority", "max-attempts", "payload", "body-file"} {
		f.names[name] = true
	}
	return f
}

// job makes the job that the flags describe.
func (f *jobFlags) job(c *cobra.Command) (outbox.Job, error) {
	flags := c.Flags()
	job := outbox.Job{Kind: f.kind, Key: f.key, RunAt: f.runAt.t, MaxAttempts: f.maxAttempts}
	switch {
	case !flags.Changed("kind"):
		return job, usagef("enqueue wants --kind, or - for standard input")
	case flags.Changed("payload") == flags.Changed("body-file"):
		return job, usagef("enqueue wants --payload or --body-file, one of them")
	case flags.Changed("key") && f.key == "":
		return job, usagef("--key is empty; leave it out for a job without a key")
	case flags.Changed("max-attempts") && f.maxAttempts < 1:
		return job, usagef("--max-attempts must be at least 1")
	case f.priority < math.MinInt16 || f.priority > math.MaxInt16:
		return job, usagef("--priority must be from %d to %d", math.MinInt16, math.MaxInt16)
	}
	job.Priority = int16(f.priority)
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if _, twice := job.Headers[name]; !ok || twice {
			return job, usagef("--header %q must be name=value, each name once", h)
		}
		if job.Headers == nil {
			job.Headers = map[string]any{}
		}
		job.Headers[name] = value
	}
	if flags.Changed("payload") {
		job.Payload = json.RawMessage(f.payload)
		return job, nil
	}
	body, err := os.ReadFile(f.bodyFile)
	if err != nil {
		return job, fmt.Errorf("reading the body: %w", err)
	}
	job.Body = body
	if job.Body == nil {
		job.Body = []byte{}
	}
	return job, nil
}

// flagError turns a refused job into what is wrong with the command line.
func flagError(err error) error {
	var bad *outbox.InvalidError
	if errors.As(err, &bad) {
		return usageError{errors.New(refusal(bad))}
	}
	return err
}

// refusal says why a job is refused, without its place in the call.
func refusal(bad *outbox.InvalidError) string {
	text := bad.Field
	if bad.Path != "" {
		text += " at " + bad.Path
	}
	if bad.Value != "" {
		text += " " + bad.Value
	}
	return text + ": " + bad.Rule
}

// readerUntil reads until ctx ends, also while a read waits: nobody can interrupt one of a terminal or pipe.
func readerUntil(ctx context.Context, r io.Reader) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		_ = pw.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = pw.CloseWithError(errors.New("interrupted")) })
	return pr
}
