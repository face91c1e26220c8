package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/bar"
	"github.com/schollz/progressbar/v3"
)

// replayBar shows progress on a terminal.
type replayBar struct {
	to  io.Writer
	off bool
	bar *progressbar.ProgressBar

	what string // the bar's text
}

func (b *replayBar) show(done claim.Replayed) {
	if b.off {
		return
	}
	if b.bar == nil {
		b.bar = bar.New(b.to, done.Total)
	}
	what := "copied"
	if done.Waiting > 0 {
		what = fmt.Sprintf("copied (waiting for relays, %d not finished)", done.Waiting)
	}
	if what != b.what {
		b.bar.Describe(what)
		b.what = what
	}
	_ = b.bar.Set64(done.Copied)
}

func (b *replayBar) end() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}

// replaySummary is what a replay did, as JSON.
type replaySummary struct {
	Name     string       `json:"name"`
	Copied   int64        `json:"copied"`
	Skipped  int64        `json:"skipped"`
	Had      int64        `json:"skipped_had"`  // the destination has had them
	Gone     int64        `json:"skipped_gone"` // no done jobs (any more)
	InAll    int64        `json:"copied_in_all"`
	Finished bool         `json:"finished"`
	DryRun   bool         `json:"dry_run"`
	Kinds    []replayKind `json:"kinds,omitempty"` // of a dry run
}

type replayKind struct {
	Kind    string     `json:"kind"`
	Jobs    int64      `json:"jobs"`
	Skipped int64      `json:"skipped"`
	FirstID int64      `json:"first_id"`
	LastID  int64      `json:"last_id"`
	First   *time.Time `json:"first_finished_at"`
	Last    *time.Time `json:"last_finished_at"`
}

func (a *app) printReplayed(r claim.Replay, done claim.Replayed, finished, asJSON bool) error {
	if asJSON {
		s := replaySummary{done.Name, done.Copied, done.Skipped(), done.Had, done.Gone, done.InAll, finished && !r.DryRun, r.DryRun, nil}
		for _, k := range done.Kinds {
			s.Kinds = append(s.Kinds, replayKind{k.Kind, k.Jobs, k.Had, k.FirstID, k.LastID, utc(k.First), utc(k.Last)})
		}
		return printJSON(a.stdout, s)
	}
	mark := ""
	if r.DryRun {
		mark = "dry run: "
		if err := a.printReplayKinds(done.Kinds); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(a.stdout, "%sname %s, copied %d, skipped %d, copied in all %d\n", mark, done.Name, done.Copied, done.Skipped(), done.InAll); err != nil {
		return err
	}
	if done.Had > 0 {
		_, _ = fmt.Fprintf(a.stderr, "relay: skipped %d that %s has had: with --again they are sent as well\n", done.Had, r.Filter.Destination)
	}
	if done.Gone > 0 {
		_, _ = fmt.Fprintf(a.stderr, "relay: skipped %d that are no done jobs (any more)\n", done.Gone)
	}
	return nil
}

func (a *app) printReplayKinds(kinds []claim.ReplayKind) error {
	if len(kinds) == 0 {
		return nil
	}
	t := table(a.stdout)
	_, _ = fmt.Fprintln(t, "KIND\tJOBS\tSKIPPED\tFIRST ID\tLAST ID\tDONE FROM\tTO")
	for _, k := range kinds {
		first, last := "-", "-"
		if k.Jobs > 0 {
			first, last = strconv.FormatInt(k.FirstID, 10), strconv.FormatInt(k.LastID, 10)
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", printable(k.Kind), k.Jobs, k.Had, first, last, printTime(k.First), printTime(k.Last))
	}
	return t.Flush()
}
