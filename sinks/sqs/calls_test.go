package sqs

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/jobrelay/relay/sinks"
)

// A queue that hangs takes its own messages' time, and nobody else's.
func TestHangingQueue(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var once sync.Once
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action == "SendMessageBatch" && strings.HasSuffix(in.QueueUrl, "/hangs") {
				<-release
			}
			return nil
		}
	})
	defer once.Do(func() { close(release) })
	batch := append(messages(f.create("hangs"), 10), messages(f.create("works"), 10)...)
	s := start(t, f, func(s *Settings) { s.Parallel = 4 })
	begin := time.Now()
	results := publishIn(t, s, batch, 2*time.Second)
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("Publish took %v, want about its 2s", took)
	}
	for i := range results {
		if i < 10 {
			want(t, results, i, sinks.Unknown, sinks.ScopeAddress, "deadline")
		} else {
			want(t, results, i, sinks.Accepted, 0, "")
		}
	}
	once.Do(func() { close(release) })
}

// A queue that hangs or is in trouble is one, when others are answered meanwhile, in the same call or in another; alone it
// may be the endpoint. So also when it can't be looked up.
func TestSilenceOfOneQueue(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"SendMessageBatch", "GetQueueUrl"} {
		f := newFake(t, func(f *fake) {
			f.call = func(action string, in *fakeRequest) *fakeReply {
				if action == at && strings.HasSuffix(in.QueueUrl+in.QueueName, "sick") {
					return refuse(500, "InternalFailure", "sorry")
				}
				return nil
			}
		})
		sick, good := messages(f.create("sick"), 1), messages(f.create("good"), 1)
		outcome := map[string]sinks.Outcome{"SendMessageBatch": sinks.Unknown, "GetQueueUrl": sinks.Unavailable}[at]
		s := start(t, f, func(*Settings) {}).(*sink)
		want(t, publish(t, s, sick), 0, outcome, sinks.ScopeSink, "sorry")
		results := publish(t, s, slices.Concat(sick, good))
		want(t, results, 0, outcome, sinks.ScopeAddress, "sorry")
		want(t, results, 1, sinks.Accepted, 0, "")
		want(t, publish(t, s, sick), 0, outcome, sinks.ScopeSink, "sorry") // nobody was answered since it began
	}
}

// A retry goes alone, so the others' answers come in other calls.
func TestSilenceBesideOtherCalls(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action == "SendMessageBatch" && strings.HasSuffix(in.QueueUrl, "/sick") {
				close(begun)
				<-release
				return refuse(500, "InternalFailure", "sorry")
			}
			return nil
		}
	})
	sick, good := messages(f.create("sick"), 1), messages(f.create("good"), 1)
	s := start(t, f, func(*Settings) {})
	var lone sync.WaitGroup
	lone.Go(func() { want(t, publish(t, s, sick), 0, sinks.Unknown, sinks.ScopeAddress, "sorry") })
	<-begun
	want(t, publish(t, s, good), 0, sinks.Accepted, 0, "")
	close(release)
	lone.Wait()
}

// A turn that comes when more time has gone than is left isn't used: what is cut off by the deadline would be unknown, and
// pause everything.
func TestLateTurn(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action == "SendMessageBatch" && slow.Load() {
				time.Sleep(1400 * time.Millisecond)
			}
			return nil
		}
	})
	s := start(t, f, func(s *Settings) { s.Parallel = 1 })
	batch := messages(f.create("q"), 1)
	want(t, publish(t, s, batch), 0, sinks.Accepted, 0, "")
	slow.Store(true)
	results := make(chan sinks.Result, 2)
	for range 2 {
		go func() { results <- publishIn(t, s, batch, 2*time.Second)[0] }()
	}
	both := []sinks.Result{<-results, <-results}
	late := slices.IndexFunc(both, func(r sinks.Result) bool { return r.Outcome != sinks.Accepted })
	if late < 0 {
		t.Fatalf("both were accepted, and there is one slot")
	}
	want(t, both, late, sinks.Unavailable, sinks.ScopeMessage, sinks.ErrLate.Error())
	want(t, both, 1-late, sinks.Accepted, 0, "")
}

// A panic in a call would end the process: nobody else can recover it. It costs its own messages an attempt, and nothing
// that other calls have.
func TestPanicInACall(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	f.create("q.fifo")
	f.create("bad")
	s := inMemorySink(f)
	s.settings.Parallel = 3
	s.slots = make(chan struct{}, 1)
	sound := s.client.Client
	for _, at := range []string{"SendMessageBatch", "GetQueueUrl"} {
		s.client.Client = awssqs.New(sound.Options(), func(o *awssqs.Options) {
			o.HTTPClient = panics{inMemory{f}, at}
		})
		clear(s.queues.known)
		batch := slices.Concat(messages("q.fifo", 20), messages("bad", 20))
		for i, r := range publish(t, s, batch) {
			switch {
			case i < 20:
				want(t, []sinks.Result{r}, 0, sinks.Accepted, 0, "")
			default:
				want(t, []sinks.Result{r}, 0, sinks.Unknown, sinks.ScopeMessage, "panicked")
			}
		}
		s.client.Client = sound
		clear(s.queues.known)
		want(t, publish(t, s, batch), 39, sinks.Accepted, 0, "") // it took no slot and no question along
	}
}

// panics is a way to a server that doesn't survive calls about a bad queue.
type panics struct {
	inMemory
	at string
}

func (p panics) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), p.at) && strings.Contains(string(body), "bad") {
		panic("boom")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return p.inMemory.Do(r)
}

// A queue that throttles is still where it was: asking for it again would add calls when AWS wants fewer. And however many
// need a queue that isn't known yet, one of them asks.
func TestOneQuestion(t *testing.T) {
	t.Parallel()
	var calls, throttles atomic.Int64
	throttles.Store(2)
	f := newFake(t, func(f *fake) {
		f.call = func(action string, _ *fakeRequest) *fakeReply {
			switch {
			case action != "SendMessageBatch":
				calls.Add(1)
				time.Sleep(20 * time.Millisecond)
			case throttles.Add(-1) >= 0:
				return refuse(400, "ThrottlingException", "slowly")
			}
			return nil
		}
		f.entry = func(_ string, e *fakeEntry) *fakeFailure {
			if e.attributes()["relay-id"] == "shop/0" && throttles.Load() > -3 {
				return &fakeFailure{Code: "RequestThrottled"}
			}
			return nil
		}
	})
	s := start(t, f, func(*Settings) {})
	batch := messages(f.create("q"), 2)
	for range 2 {
		want(t, publish(t, s, batch), 0, sinks.Unavailable, sinks.ScopeAddress, "slowly")
	}
	want(t, publish(t, s, batch), 0, sinks.Unavailable, sinks.ScopeAddress, "RequestThrottled")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { want(t, publish(t, s, batch), 1, sinks.Accepted, 0, "") })
	}
	all.Wait()
	if n := calls.Load(); n != 2 { // its URL and its limit
		t.Errorf("%d calls that ask, want two", n)
	}
	f.create("r")
	calls.Store(0)
	for range 8 {
		all.Go(func() { want(t, publish(t, s, messages("r", 1)), 0, sinks.Accepted, 0, "") })
	}
	all.Wait()
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls of eight at once that ask, want two", n)
	}
}

// One that asked and had no time left asks for nobody: the others ask again.
func TestQuestionWithoutAnswer(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	release := make(chan struct{})
	var hang atomic.Bool
	hang.Store(true)
	f := newFake(t, func(f *fake) {
		f.call = func(action string, _ *fakeRequest) *fakeReply {
			if action == "GetQueueUrl" {
				asked <- struct{}{}
				if hang.Load() {
					<-release
				}
			}
			return nil
		}
	})
	defer close(release)
	s := start(t, f, func(*Settings) {})
	batch := messages(f.create("q"), 1)
	var all sync.WaitGroup
	all.Go(func() {
		want(t, publishIn(t, s, batch, 300*time.Millisecond), 0, sinks.Unavailable, sinks.ScopeSink, "deadline")
	})
	<-asked
	hang.Store(false)
	all.Go(func() { want(t, publish(t, s, batch), 0, sinks.Accepted, 0, "") })
	all.Wait()
}
