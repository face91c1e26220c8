package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobrelay/relay/internal/history"
)

// kinds are what the producers enqueue. Each has destinations of its own, so that what arrives tells where it was sent.
var kinds = map[string]history.Route{
	"kafka":          {To: []string{"kafka:plain"}},
	"rabbit":         {To: []string{"rabbitmq:chaos/plain"}},
	"queue":          {To: []string{"sqs:plain"}},
	"kafka-ordered":  {To: []string{"kafka:ordered"}, Ordered: true, Known: map[string]bool{"kafka:ordered": true}},
	"rabbit-ordered": {To: []string{"rabbitmq:chaos/ordered"}, Ordered: true},
	"queue-ordered":  {To: []string{"sqs:ordered.fifo"}, Ordered: true, Known: map[string]bool{"sqs:ordered.fifo": true}},
	"all":            {To: []string{"kafka:all", "rabbitmq:chaos/all", "sqs:all"}},
	"both-ordered":   {To: []string{"kafka:both", "rabbitmq:chaos/both"}, Ordered: true, Known: map[string]bool{"kafka:both": true}},
	"shared":         {To: []string{"kafka:shared"}, Shared: true, Share: share},
	"past":           {To: []string{"kafka:past"}, Replayed: true},
	"poison":         {To: []string{"rabbitmq:chaos/poison"}, Poison: true},
}

// traded are the kinds that come all the time, the cheap ones more often.
var traded = []string{
	"kafka", "kafka", "kafka", "rabbit", "rabbit", "rabbit", "queue", "kafka-ordered", "kafka-ordered", "rabbit-ordered", "rabbit-ordered",
	"queue-ordered", "all", "both-ordered", "shared", "shared", "poison",
}

// routes is what relays are told of them.
func routes() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r := kinds[kind]
		fmt.Fprintf(&b, "- {kind: %s, to: [%q]", kind, strings.Join(r.To, `", "`))
		if r.Ordered {
			b.WriteString(", order: key")
		}
		if r.Shared {
			fmt.Fprintf(&b, ", share: %d", r.Share)
		}
		b.WriteString("}\n")
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

// places are the addresses on a broker.
func places(broker string) (addresses []string) {
	for _, r := range kinds {
		for _, to := range r.To {
			if address, ok := strings.CutPrefix(to, broker+":"); ok {
				addresses = append(addresses, address)
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}
