package kafka

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/jobrelay/relay/sinks"
)

// TestPanicInALane costs a duplicate at most, not the process: the lane runs in goroutines of the sink's own, where nobody
// else could recover. Other lanes' messages are accepted, and so are the next.
func TestPanicInALane(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 2, kfake.SeedTopics(8, "a"))
	s := open(t, cluster.ListenAddrs()[0])
	good := s.encoders.New
	var panics atomic.Int32
	s.encoders.New = func() any {
		if panics.Add(1) == 1 {
			panic("boom")
		}
		return good()
	}
	batch := messages("a", 100)
	for i := range batch {
		key := fmt.Sprint("key", i)
		batch[i].Key = &key
	}
	unknown := 0
	for _, r := range publish(t, s, batch) {
		if r.Outcome == sinks.Unknown && r.Err != nil {
			unknown++
		} else {
			want(t, []sinks.Result{r}, 0, 1, sinks.Accepted, sinks.ScopeMessage)
		}
	}
	if unknown == 0 || unknown == len(batch) {
		t.Errorf("%d of %d messages are unknown, want those of one of two lanes", unknown, len(batch))
	}
	accepted(t, publish(t, s, batch))
}
