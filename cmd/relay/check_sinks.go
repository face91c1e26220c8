package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/sinks"
)

// sinkChecks ask each destination that is known without a job, and the broker alone where no destination is.
func (s *settings) sinkChecks(open map[string]sinks.Sink) []check {
	var checks []check
	asked := map[string]bool{}
	destinations := s.router.Destinations()
	for _, d := range destinations {
		if d.Fixed {
			asked[d.Sink] = true
			checks = append(checks, sinkCheck(open[d.Sink], d.Text, d.Address))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if !asked[name] {
			checks = append(checks, sinkCheck(open[name], name+":", ""))
		}
	}
	for _, d := range destinations {
		if !d.Fixed {
			checks = append(checks, func(context.Context) []ops.Finding {
				return []ops.Finding{{Level: ops.OK, Subject: d.Text, Text: "the address depends on the job: only the broker was asked"}}
			})
		}
	}
	return checks
}

func sinkCheck(sink sinks.Sink, subject, address string) check {
	return func(ctx context.Context) []ops.Finding {
		if err := ask(ctx, sink, address); err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: subject, Text: err.Error()}}
		}
		return []ops.Finding{{Level: ops.OK, Subject: subject, Text: "takes messages"}}
	}
}

// askGrace is how long after its time a sink is waited for that doesn't keep it.
const askGrace = time.Second

// ask calls the sink's Check; one that panics or doesn't return must not keep the other findings from being printed.
func ask(ctx context.Context, sink sinks.Sink, address string) error {
	says := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				says <- fmt.Errorf("the check panicked: %v", v)
			}
		}()
		says <- sink.Check(ctx, address)
	}()
	select {
	case err := <-says:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-says:
		return err
	case <-time.After(askGrace):
		return errors.New("the check doesn't return")
	}
}
