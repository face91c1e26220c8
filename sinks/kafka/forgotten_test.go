package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTopicForgottenMeanwhile: with very many topics in use, one whose layout was still good when a batch asked for another
// is forgotten before the answer is there. The batch goes on with what it knew.
func TestTopicForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b"))
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 1)))
	c := s.cluster
	c.mu.Lock()
	for i := range topicsKept {
		name := fmt.Sprint("x", i)
		c.topics[name] = &topic{name: name, layout: &layout{}, asked: time.Now()}
	}
	c.mu.Unlock()
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.topics["a"].asked = time.Now().Add(-metadataTTL - time.Second) // as if the answer had taken so long
		return nil, nil, false
	})
	accepted(t, publish(t, s, append(messages("a", 1), messages("b", 1)...)))
}
