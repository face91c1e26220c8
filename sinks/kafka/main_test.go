package kafka

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The fake cluster leaves a goroutine behind for each request that it still holds when it closes.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).runControl.func1"))
}
