package rabbitmq

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
)

// B16: a memory alarm. Every call ends in time; a connection that knows of the alarm sends nothing and says so at once;
// afterwards the same sink delivers everything. (That no goroutine is left, TestMain sees to.)
func TestB16Alarm(t *testing.T) {
	t.Parallel()
	node := services.OwnRabbitMQ(t)
	b := broker{t, node.URL}
	q, after := b.queue(nil), b.queue(nil)
	alarm := func(on bool) {
		if on {
			node.Ctl("set_vm_memory_high_watermark", "0.000001")
		} else {
			node.Ctl("set_vm_memory_high_watermark", "absolute", "2GB")
		}
	}
	defer alarm(false)
	s := open(t, node.URL, one)
	large := func(n int) []sinks.Message {
		batch := messages(n, "/"+q)
		for i := range batch {
			batch[i].Payload = []byte(strings.Repeat("x", 100_000))
		}
		return batch
	}
	wantAll(t, publish(t, s, large(1), patience), sinks.Accepted, 0)
	wantAll(t, publish(t, s, large(1), patience), sinks.Accepted, 0)

	t.Log("under way") // 50 MB are more than the buffers between us take
	results := make(chan []sinks.Result)
	batch := large(500)
	go func() { results <- publish(t, s, batch, 5*time.Second) }()
	alarm(true)
	wantStopped(t, <-results)

	t.Log("known") // the broker tells of an alarm when the next message comes, and answers neither
	eventually(t, "the sink says blocked", func() bool {
		r := publish(t, s, large(10), time.Second)
		wantStopped(t, r)
		return r[0].Outcome == sinks.Unavailable && strings.Contains(r[0].Err.Error(), "low on memory")
	})
	wantAll(t, publish(t, s, large(10), patience), sinks.Unavailable, sinks.ScopeSink, "blocked", "low on memory")
	if err := check(t, s, "/"+q); err == nil || !strings.Contains(err.Error(), "low on memory") {
		t.Errorf("Check during the alarm: got %v", err)
	}

	t.Log("a fresh sink meets it")
	fresh := openUnclosed(t, node.URL, one)
	wantAll(t, publish(t, fresh, large(10), patience), sinks.Unavailable, sinks.ScopeSink, "low on memory")
	if err := check(t, fresh, "/"+q); err == nil || !strings.Contains(err.Error(), "low on memory") {
		t.Errorf("Check of a fresh sink: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := fresh.Close(ctx); err != nil {
		t.Errorf("Close during the alarm: %v", err)
	}

	alarm(false)
	eventually(t, "Check passes", func() bool { return check(t, s, "/"+q) == nil })
	for i := range batch {
		batch[i].Address = "/" + after
	}
	wantAll(t, publish(t, s, batch, patience), sinks.Accepted, 0)
	if got := b.ids(after, 500); len(got) != 500 {
		t.Errorf("%d messages arrived after the alarm, want 500", len(got))
	}
}

// wantStopped: taken, not sent, or without a word, but nothing that is a message's own fault.
func wantStopped(t *testing.T, results []sinks.Result) {
	t.Helper()
	for i, r := range results {
		if r.Outcome == sinks.Failed || r.Outcome == sinks.Rejected {
			t.Errorf("result %d: got %v of the %v (%v)", i, r.Outcome, r.Scope, r.Err)
		}
	}
}

// B17: the node restarts, or an operator closes all connections, while messages flow. Whatever was accepted is there
// afterwards, whatever is unavailable isn't, and publishing goes on by itself.
func TestB17Restart(t *testing.T) {
	t.Parallel()
	node := services.OwnRabbitMQ(t)
	b := broker{t, node.URL}
	q := b.queue(nil)
	s := open(t, node.URL, nil)
	var (
		mu      sync.Mutex
		outcome = map[string]sinks.Outcome{}
		serial  int
	)
	ids := func(n int) []sinks.Message {
		mu.Lock()
		defer mu.Unlock()
		batch := messages(n, "/"+q)
		for i := range batch {
			serial++
			batch[i].ID = fmt.Sprintf("test/%d", serial)
		}
		return batch
	}
	send := func() bool {
		batch := ids(50)
		results := publish(t, s, batch, 5*time.Second)
		mu.Lock()
		defer mu.Unlock()
		good := true
		for i, r := range results {
			outcome[batch[i].ID] = r.Outcome
			good = good && r.Outcome == sinks.Accepted
			if r.Outcome != sinks.Accepted && r.Outcome != sinks.Unknown && r.Outcome != sinks.Unavailable {
				t.Errorf("got %v (%v)", r.Outcome, r.Err)
			}
		}
		return good
	}
	under := func(what func()) { // while two callers publish
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				for ctx.Err() == nil {
					send()
					time.Sleep(100 * time.Millisecond) // after a failure the relay pauses for longer
				}
			})
		}
		what()
		cancel()
		callers.Wait()
		eventually(t, "publishing works again", send)
	}
	under(func() { node.Ctl("close_all_connections", "maintenance") })
	under(func() { node.Ctl("stop_app"); node.Ctl("start_app") })
	under(func() { node.Kill(); node.Start() })

	got, unknown := map[string]int{}, 0
	for _, d := range b.read(q, 0) {
		got[d.MessageId]++
	}
	for id, o := range outcome {
		switch {
		case o == sinks.Accepted && got[id] != 1:
			t.Errorf("%s was accepted and is there %d times", id, got[id])
		case o == sinks.Unavailable && got[id] != 0:
			t.Errorf("%s was unavailable and is there", id)
		case o == sinks.Unknown:
			unknown++
		}
	}
	if max := 3 * 2 * 50; unknown > max {
		t.Errorf("%d messages are unknown after three cuts with two batches in flight, want %d at most", unknown, max)
	}
	t.Logf("%d messages, %d unknown", len(outcome), unknown)
}
