package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
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
type timeFlag struct {
	t       time.Time
	written string // in one form for all ways to write the same
}

func (f *timeFlag) Type() string { return "time" }

func (f *timeFlag) String() string {
	if f.t.IsZero() {
		return ""
	}
	return f.t.Format(time.RFC3339)
}

func (f *timeFlag) Set(text string) error {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		f.t, f.written = t, t.UTC().Format(time.RFC3339Nano)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || text[0] == '-' {
		return fmt.Errorf("must be a time such as 2006-01-02T15:04:05Z, or a duration such as 2h, back from now")
	}
	f.written = d.String()
	if text[0] == '+' {
		f.written = "+" + f.written
	} else {
		d = -d
	}
	f.t = time.Now().Add(d)
	return nil
}

// rateFlag is a bound of jobs a second.
type rateFlag struct{ n int }

// newRateFlag adds --rate.
func newRateFlag(c *cobra.Command, what string) *rateFlag {
	f := &rateFlag{claim.DefaultRate}
	c.Flags().Var(f, "rate", fmt.Sprintf("%s a second, at most %d", what, claim.RateMost))
	return f
}

func (f *rateFlag) Type() string { return "int" }

func (f *rateFlag) String() string { return strconv.Itoa(f.n) }

func (f *rateFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > claim.RateMost {
		return fmt.Errorf("must be a whole number from 1 to %d", claim.RateMost)
	}
	f.n = n
	return nil
}
