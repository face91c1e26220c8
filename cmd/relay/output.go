package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// printJSON writes one object on a line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table lines up columns that are separated by tabs.
func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// printTime writes a time for people and machines alike; nothing for none.
func printTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// seconds writes a duration given in seconds: 0s, 1.5s, 3m20s.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// timeFlag is a point in time: RFC 3339, or a duration back from now (2h), or from now on (+2h).
type timeFlag struct{ t time.Time }

func (f *timeFlag) Type() string { return "time" }

func (f *timeFlag) String() string {
	if f.t.IsZero() {
		return ""
	}
	return f.t.Format(time.RFC3339)
}

func (f *timeFlag) Set(text string) error {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		f.t = t
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || text[0] == '-' {
		return fmt.Errorf("must be a time such as 2006-01-02T15:04:05Z, or a duration such as 2h, back from now")
	}
	if text[0] != '+' {
		d = -d
	}
	f.t = time.Now().Add(d)
	return nil
}
