package sqs

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// Once a connection is refused nothing can have been sent, also when the queue is known already.
func TestAwayAfterSending(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	p := sinktest.NewProxy(t, strings.TrimPrefix(f.url, "http://"))
	s := start(t, f, func(s *Settings) { s.Endpoint = "http://" + p.Addr() })
	want(t, publish(t, s, messages(f.create("q"), 1)), 0, sinks.Accepted, 0, "")
	p.Cut()
	_ = publish(t, s, messages("q", 1)) // may have got the connection that broke
	results := publish(t, s, messages("q", 20))
	for i := range results {
		want(t, results, i, sinks.Unavailable, sinks.ScopeSink, "refused")
	}
}

// replay is a transport that is asked for a connection, gets one that has just gone, and then finds no other.
type replay struct{ bodies []string }

func (r *replay) RoundTrip(request *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(request.Context())
	for _, step := range []func(){func() { trace.GetConn("") }, func() { trace.GotConn(httptrace.GotConnInfo{}) }, func() { trace.GetConn("") }} {
		step()
		body, _ := request.GetBody()
		text, _ := io.ReadAll(body)
		r.bodies = append(r.bodies, string(text))
	}
	return nil, errors.New("refused")
}

// A request that was moved to another connection wasn't written to the first.
func TestAttemptFollowsTheRequest(t *testing.T) {
	t.Parallel()
	ctx, a := watched(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x.invalid", io.NopCloser(strings.NewReader("text")))
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{}
	if _, err = (&traced{&http.Client{Transport: r}}).Do(request); err == nil {
		t.Errorf("got no error")
	}
	if a.connected.Load() {
		t.Errorf("the attempt counts as connected, though the last connection was never made")
	}
	if due := []string{"text", "text", "text"}; !slices.Equal(r.bodies, due) {
		t.Errorf("bodies %q, want %q", r.bodies, due)
	}
}

// A server that answers as soon as it has read what it must leaves the connection in use. The SDK's own body doesn't.
func TestFastAnswersKeepTheConnection(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	f := newFake(t, func(f *fake) {
		f.entry = func(string, *fakeEntry) *fakeFailure { return &fakeFailure{Code: "InternalError", Message: long} }
	})
	s := start(t, f, func(*Settings) {})
	batch := messages(f.create("q"), 1)
	for range 300 {
		want(t, publish(t, s, batch), 0, sinks.Failed, sinks.ScopeMessage, "InternalError")
	}
}

// Check tells what publishing would run into, as far as looking can.
func TestCheck(t *testing.T) {
	t.Parallel()
	denied := refuse(403, "AccessDenied", "not for you")
	for name, c := range map[string]struct {
		action  string
		reply   *fakeReply
		address string
		text    string // "" when it passes
	}{
		"name":                       {"", nil, "q", ""},
		"URL":                        {"", nil, "https://sqs.eu-west-1.amazonaws.com/000000000000/q", ""},
		"endpoint":                   {"", nil, "", ""},
		"missing name":               {"", nil, "r", "r: QueueDoesNotExist"},
		"missing URL":                {"", nil, "https://sqs.eu-west-1.amazonaws.com/000000000000/r", "QueueDoesNotExist"},
		"strange name":               {"", nil, "a queue", "a queue"},
		"attributes not permitted":   {"GetQueueAttributes", denied, "q", ""},
		"attributes broken":          {"GetQueueAttributes", refuse(500, "InternalFailure", "sorry"), "q", "sorry"},
		"name lookup not permitted":  {"GetQueueUrl", denied, "q", "not for you"},
		"list not permitted":         {"ListQueues", denied, "", ""},
		"list refused for signature": {"ListQueues", refuse(403, "SignatureDoesNotMatch", "who"), "", "who"},
		"list broken":                {"ListQueues", &fakeReply{http.StatusBadGateway, "<html>"}, "", "502"},
		"list not there":             {"ListQueues", &fakeReply{http.StatusNotFound, "<html>"}, "", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fake) {
				f.call = func(action string, _ *fakeRequest) *fakeReply {
					if action == c.action {
						return c.reply
					}
					return nil
				}
			})
			f.create("q")
			err := start(t, f, func(*Settings) {}).Check(t.Context(), c.address)
			if (err == nil) != (c.text == "") || (err != nil && !strings.Contains(err.Error(), c.text)) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
}
