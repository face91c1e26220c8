package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestB12NotEnoughReplicas: while replicas lack, nothing is accepted and nothing is a message's own fault, however often
// it is tried; afterwards the same sink delivers all.
func TestB12NotEnoughReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		code *kerr.Error
		want sinks.Outcome
	}{
		{"refused", kerr.NotEnoughReplicas, sinks.Unavailable},
		{"too late to refuse", kerr.NotEnoughReplicasAfterAppend, sinks.Unknown},
		{"no word of the replicas in time", kerr.RequestTimedOut, sinks.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, 1, kfake.SeedTopics(3, "a"))
			var lacking atomic.Bool
			lacking.Store(true)
			cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				if !lacking.Load() {
					return nil, nil, false
				}
				req := r.(*kmsg.ProduceRequest)
				resp := req.ResponseKind().(*kmsg.ProduceResponse)
				acceptAll(req, resp)
				for i := range resp.Topics[0].Partitions {
					resp.Topics[0].Partitions[i].ErrorCode = c.code.Code
				}
				return resp, nil, true
			})
			s, batch := open(t, cluster.ListenAddrs()[0]), messages("a", 100)
			for range 3 {
				wantAll(t, publish(t, s, batch), c.want, sinks.ScopeAddress)
			}
			lacking.Store(false)
			accepted(t, publish(t, s, batch))
			read(t, cluster.ListenAddrs()[0], "a", 100)
		})
	}
}
