package sqs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jobrelay/relay/sinks"
)

// keyed makes messages of these keys, in turn; "-" is none.
func keyed(address string, keys string) []sinks.Message {
	batch := messages(address, len(keys))
	for i, k := range keys {
		key := string(k)
		batch[i].Key = &key
		if key == "-" {
			batch[i].Key = nil
		}
	}
	return batch
}

// A message that fails holds its group for this batch, whatever the failure; other groups go on, and so does a group
// whose message can never come.
func TestFailureHoldsItsGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure *fakeFailure
		holds   bool
		outcome sinks.Outcome
	}{
		"failed":    {&fakeFailure{Code: "InternalError"}, true, sinks.Failed},
		"throttled": {&fakeFailure{Code: "RequestThrottled"}, true, sinks.Unavailable},
		"rejected":  {&fakeFailure{Code: "InvalidMessageContents"}, false, sinks.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fake) {
				f.entry = func(_ string, e *fakeEntry) *fakeFailure {
					if e.attributes()["relay-id"] == "shop/2" {
						return c.failure
					}
					return nil
				}
			})
			batch := keyed(f.create("q.fifo"), "aAaAaAaA") // shop/2 is the second of a
			results := publish(t, start(t, f, func(*Settings) {}), batch)
			for i := range results {
				switch {
				case i == 2:
					want(t, results, i, c.outcome, results[i].Scope, c.failure.Code)
				case i > 2 && i%2 == 0 && c.holds:
					want(t, results, i, sinks.Unavailable, sinks.ScopeMessage, "not sent")
				default:
					want(t, results, i, sinks.Accepted, 0, "")
				}
			}
			due := 1
			if !c.holds {
				due = 3
			}
			if got := f.group("q.fifo", "a"); len(got) != due {
				t.Errorf("the queue has %v of the group, want %d messages", got, due)
			}
		})
	}
}

func (f *fake) group(queue, group string) (ids []string) {
	for _, e := range f.received(queue) {
		if e.MessageGroupId == group {
			ids = append(ids, e.attributes()["relay-id"])
		}
	}
	return ids
}

// No call has two messages of a group, no two calls of a group are in flight at once, and all arrive in order.
func TestGroupsGoOneByOne(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	inFlight := map[string]bool{}
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action != "SendMessageBatch" {
				return nil
			}
			mu.Lock()
			for _, e := range in.Entries {
				if inFlight[e.MessageGroupId] {
					t.Errorf("two messages of the group %q at once", e.MessageGroupId)
				}
				inFlight[e.MessageGroupId] = true
			}
			mu.Unlock()
			answer := f.answer(action, in)
			mu.Lock()
			defer mu.Unlock()
			clear(inFlight)
			return answer
		}
	})
	// Twenty-six groups of 1 to 26 messages, and those without a key, which go by their kind.
	var keys strings.Builder
	for round := range 26 {
		for k := round; k < 26; k++ {
			keys.WriteByte(byte('a' + k))
		}
		keys.WriteByte('-')
	}
	batch := keyed(f.create("q.fifo"), keys.String())
	for i := range batch {
		if batch[i].Key == nil {
			batch[i].Kind = "no key"
		}
	}
	results := publish(t, start(t, f, func(s *Settings) { s.Parallel = 1 }), batch)
	due := map[string][]string{}
	for i, m := range batch {
		want(t, results, i, sinks.Accepted, 0, "")
		g := groupOf(&m)
		due[g] = append(due[g], m.ID)
	}
	for g, ids := range due {
		if got := f.group("q.fifo", g); !slices.Equal(got, ids) {
			t.Errorf("group %q arrived as %v, want %v", g, got, ids)
		}
	}
	if calls := len(f.sizes()); calls > 70 { // 377 messages; 26 calls for the longest groups, fewer for the others
		t.Errorf("%d calls for %d messages", calls, len(batch))
	}
}

// Every attempt has the same deduplication id, so that what was lost on the way back isn't there twice; a replay has another.
func TestDeduplication(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	s := start(t, f, func(*Settings) {})
	batch := keyed(f.create("q.fifo"), "a")
	for attempt := range 3 {
		batch[0].Attempt = attempt + 1
		want(t, publish(t, s, batch), 0, sinks.Accepted, 0, "")
	}
	batch[0].Replay = 99
	want(t, publish(t, s, batch), 0, sinks.Accepted, 0, "")
	got := f.received("q.fifo")
	if len(got) != 2 || got[0].MessageDeduplicationId != "shop/0" || got[1].MessageDeduplicationId == "shop/0" {
		t.Errorf("the queue has %d messages, want the first try and the replay", len(got))
	}
}

// What a plan must keep: the order of a group, ten entries and the bytes of a call, nobody left out.
func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes []int
		fifo  bool
		calls string // sizes of entries, calls divided by space, strands by bar
	}{
		"nothing":              {nil, false, ""},
		"eleven":               {repeat(1, 11), false, "1,1,1,1,1,1,1,1,1,1 | 1"},
		"by bytes":             {[]int{60, 40, 1, 99, 100, 50}, false, "60,40 | 1,99 | 100 | 50"},
		"one group":            {[]int{10, 20, 30}, true, "10 20 30"},
		"one group, too large": {[]int{60, 70}, true, "60 70"},
	} {
		entries := make([]*entry, len(c.sizes))
		for i, size := range c.sizes {
			entries[i] = &entry{index: i, size: size, group: "g"}
		}
		if got := draw(plan(entries, c.fifo, 100)); got != c.calls {
			t.Errorf("%s: got %q, want %q", name, got, c.calls)
		}
	}
}

func repeat(n, times int) []int { return slices.Repeat([]int{n}, times) }

func draw(strands []strand) string {
	var all []string
	for _, s := range strands {
		var calls []string
		for _, c := range s {
			var sizes []string
			for _, e := range c {
				sizes = append(sizes, fmt.Sprint(e.size))
			}
			calls = append(calls, strings.Join(sizes, ","))
		}
		all = append(all, strings.Join(calls, " "))
	}
	return strings.Join(all, " | ")
}
