package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/sinks"
)

// badCheck is a sink whose Check panics, or waits for end whatever its context says.
type badCheck struct {
	sinks.Sink
	end chan struct{}
}

func (b badCheck) Check(_ context.Context, address string) error {
	if address == "panics" {
		panic("boom")
	}
	<-b.end
	return nil
}

// A sink that doesn't keep its promise is a finding among the others.
func TestChecksOfABadSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := badCheck{end: make(chan struct{})}
		start := time.Now()
		found := together(t.Context(), []check{
			sinkCheck(bad, "s:panics", "panics", ""), sinkCheck(bad, "s:hangs", "hangs", ""),
			func(context.Context) []ops.Finding { return []ops.Finding{{Level: ops.OK, Subject: "other"}} },
		})
		if took := time.Since(start); took > checkTimeout+5*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(found) != 3 || !strings.Contains(found[0].Text, "boom") || !strings.Contains(found[1].Text, "did not return") || found[2].Level != ops.OK {
			t.Errorf("got %+v", found)
		}
		close(bad.end)
		synctest.Wait()
	})
}
