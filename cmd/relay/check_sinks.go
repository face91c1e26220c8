package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
	"github.com/jobrelay/relay/sinks"
)

// sinkChecks ask each destination that is known without a job, and the broker alone where no destination is.
func (s *settings) sinkChecks(open map[string]sinks.Sink) []check {
	var checks []check
	asked := map[string]bool{}
	destinations := s.router.Destinations()
	for _, d := range destinations {
		switch {
		case d.Fixed:
			checks = append(checks, sinkCheck(open[d.Sink], d.Text, d.Address, "takes messages"))
		case d.Parent != "":
			checks = append(checks, sinkCheck(open[d.Sink], d.Text, d.Parent, fmt.Sprintf("the address depends on the job: only %q was asked for, and is there", d.Parent)))
		default:
			continue
		}
		asked[d.Sink] = true
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if !asked[name] {
			checks = append(checks, sinkCheck(open[name], name+":", "", "takes messages"))
		}
	}
	for _, d := range destinations {
		if !d.Fixed && d.Parent == "" {
			checks = append(checks, func(context.Context) []ops.Finding {
				return []ops.Finding{{Level: ops.OK, Subject: d.Text, Text: "the address depends on the job: only the broker was asked"}}
			})
		}
	}
	return checks
}

func sinkCheck(sink sinks.Sink, subject, address, good string) check {
	return func(ctx context.Context) []ops.Finding {
		if err := relay.Check(ctx, sink, address); err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: subject, Text: err.Error()}}
		}
		return []ops.Finding{{Level: ops.OK, Subject: subject, Text: good}}
	}
}
