package sinktest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGoodSinkPasses(t *testing.T) {
	sinktest.Run(t, harness(func(s *memorySink) sinks.Sink { return s }))
}
