package kafka

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/jobrelay/relay/sinks"
)

// TestLateTurn: a broker that takes most of a call's time for a batch is well. Who got a connection only then sends nothing.
func TestLateTurn(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	s := open(t, cluster.ListenAddrs()[0], map[string]string{"MAX_IN_FLIGHT": "1"})
	accepted(t, publish(t, s, messages("a", 1)))
	var sent atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		sent.Add(1)
		time.Sleep(1400 * time.Millisecond)
		return nil, nil, false
	})
	var calls sync.WaitGroup
	var acceptances atomic.Int32
	for range 3 {
		calls.Go(func() {
			r := publishIn(t, s, messages("a", 1), 2*time.Second)
			if r[0].Outcome == sinks.Accepted {
				acceptances.Add(1)
				return
			}
			wantAll(t, r, sinks.Unavailable, sinks.ScopeMessage)
		})
	}
	calls.Wait()
	if sent.Load() != 1 || acceptances.Load() != 1 {
		t.Errorf("%d requests, %d calls were accepted, want 1", sent.Load(), acceptances.Load())
	}
}

// hold has a call that never ends use the sequence that the run of ordered messages is pinned to.
func hold(s *sink, topic string) *sequence {
	held := s.sequencer.free(place{topic, 0})
	s.sequencer.unsure(held, [32]byte{}, []uint64{s.sequencer.hash("test", "k")})
	return held
}

// TestBusySequence: while one partition's messages wait for a sequence that another call uses, those of other partitions are
// sent, and other calls get their turn.
func TestBusySequence(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a", "b", "c"))
	s := open(t, cluster.ListenAddrs()[0], map[string]string{"MAX_IN_FLIGHT": "1"})
	held := hold(s, "a")
	sent := make(chan string, 10)
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			sent <- topic.Topic
		}
		return nil, nil, false
	})
	wantSent := func(topic string) {
		t.Helper()
		select {
		case got := <-sent:
			if got != topic {
				t.Errorf("topic %s was sent to, want %s", got, topic)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing was sent to topic %s", topic)
		}
	}
	ended := make(chan []sinks.Result)
	go func() {
		ended <- publish(t, s, append(ordered("a", 1), keyed(ordered("b", 1), "l")...))
	}()
	wantSent("b")
	accepted(t, publishIn(t, s, messages("c", 1), 10*time.Second))
	wantSent("c")
	held.release()
	accepted(t, <-ended)
	wantSent("a")
	if held.next.producer < 0 || held.doubts > 0 || !held.try() {
		t.Errorf("the sequence wasn't used and given back: %+v", held)
	}
}

// TestLateSequence: the turn of a sequence that comes too late is given back, and nothing is sent.
func TestLateSequence(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 1)))
	held := hold(s, "a")
	time.AfterFunc(700*time.Millisecond, held.release)
	r := publishIn(t, s, ordered("a", 2), time.Second)
	wantAll(t, r, sinks.Unavailable, sinks.ScopeMessage)
	if !errors.Is(r[0].Err, sinks.ErrLate) {
		t.Errorf("got %v, want %v", r[0].Err, sinks.ErrLate)
	}
	if !held.try() {
		t.Error("the sequence wasn't given back")
	}
}

// TestLateTurnMakesNoConnection: to make one would take what is left, and look like an outage.
func TestLateTurnMakesNoConnection(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	s := open(t, cluster.ListenAddrs()[0], map[string]string{"MAX_IN_FLIGHT": "1"})
	accepted(t, publish(t, s, messages("a", 1)))
	for _, p := range s.cluster.pools {
		p.pop().close()
		if err := p.acquire(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(600*time.Millisecond, p.release)
	}
	cluster.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		time.Sleep(500 * time.Millisecond)
		return nil, nil, false
	})
	wantAll(t, publishIn(t, s, messages("a", 1), time.Second), sinks.Unavailable, sinks.ScopeMessage)
}

// TestSlowConnection: one that takes most of a call's time to be made isn't used in this call, but it is in the next.
func TestSlowConnection(t *testing.T) {
	t.Parallel()
	cluster := fake(t, 1, kfake.SeedTopics(1, "a"))
	s := open(t, cluster.ListenAddrs()[0])
	accepted(t, publish(t, s, messages("a", 1)))
	for _, p := range s.cluster.pools {
		p.pop().close()
	}
	cluster.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		time.Sleep(700 * time.Millisecond)
		return nil, nil, false
	})
	wantAll(t, publishIn(t, s, messages("a", 1), time.Second), sinks.Unavailable, sinks.ScopeMessage)
	accepted(t, publishIn(t, s, messages("a", 1), time.Second))
}
