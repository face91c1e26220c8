package sqs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/sinks"
)

// messages makes n small ones with ids and keys of their own.
func messages(address string, n int) []sinks.Message {
	batch := make([]sinks.Message, n)
	for i := range batch {
		key := fmt.Sprintf("key-%d", i)
		batch[i] = sinks.Message{ID: fmt.Sprintf("shop/%d", i), Address: address, Kind: "k", Key: &key, Attempt: 1, Time: time.Unix(0, 0), Payload: []byte(`{}`)}
	}
	return batch
}

func publish(t *testing.T, s sinks.Sink, batch []sinks.Message) []sinks.Result {
	t.Helper()
	return publishIn(t, s, batch, time.Minute)
}

func publishIn(t *testing.T, s sinks.Sink, batch []sinks.Message, limit time.Duration) []sinks.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	results := make([]sinks.Result, len(batch))
	s.Publish(ctx, batch, results)
	return results
}

// start opens a sink on a fake server.
func start(t *testing.T, f *fake, change func(*Settings)) sinks.Sink {
	t.Helper()
	settings := Settings{Endpoint: f.url, Region: "eu-west-1"}
	change(&settings)
	s := open(t, settings)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func want(t *testing.T, results []sinks.Result, i int, outcome sinks.Outcome, scope sinks.Scope, text string) {
	t.Helper()
	r := results[i]
	if r.Outcome != outcome || r.Scope != scope || (r.Err != nil && !strings.Contains(r.Err.Error(), text)) || (r.Err == nil) != (outcome == sinks.Accepted) {
		t.Errorf("result %d: got %v of the %v (%v), want %v of the %v with %q", i, r.Outcome, r.Scope, r.Err, outcome, scope, text)
	}
}

// ids are the relay-ids that a queue has, in order.
func (f *fake) ids(queue string) (ids []string) {
	for _, e := range f.received(queue) {
		ids = append(ids, e.attributes()["relay-id"])
	}
	return ids
}

// tries counts how often each message was in a call.
func (f *fake) tries() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[string]int{}
	for _, c := range f.calls {
		for _, e := range c.Entries {
			n[e.attributes()["relay-id"]]++
		}
	}
	return n
}

// B19: a reply of 200 that lists entries as failed.
func TestB19FailedEntries(t *testing.T) {
	t.Parallel()
	bad := map[string]*fakeFailure{
		"shop/2":  {Code: "InternalError", Message: "try later", SenderFault: false},
		"shop/15": {Code: "InvalidMessageContents", Message: "no such characters", SenderFault: true},
		"shop/29": {Code: "RequestThrottled", Message: "slow down", SenderFault: true},
	}
	f := newFake(t, func(f *fake) {
		f.entry = func(_ string, e *fakeEntry) *fakeFailure { return bad[e.attributes()["relay-id"]] }
	})
	batch := messages(f.create("q"), 30)
	results := publish(t, start(t, f, func(*Settings) {}), batch)
	want(t, results, 2, sinks.Failed, sinks.ScopeMessage, "InternalError: try later")
	want(t, results, 15, sinks.Rejected, sinks.ScopeMessage, "InvalidMessageContents: no such characters")
	want(t, results, 29, sinks.Unavailable, sinks.ScopeAddress, "RequestThrottled: slow down")
	for i := range batch {
		if _, isBad := bad[batch[i].ID]; !isBad {
			want(t, results, i, sinks.Accepted, 0, "")
		}
	}
	if got := len(f.ids("q")); got != 27 {
		t.Errorf("%d messages in the queue, want 27", got)
	}
	for id, n := range f.tries() {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

// B19: a reply that lists only eight of ten entries, one of them under an id that nobody used.
func TestB19UnaccountedEntries(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action != "SendMessageBatch" {
				return nil
			}
			var ok []fakeSuccess
			for _, e := range slices.Backward(in.Entries[:8]) { // and not in the order of the request
				ok = append(ok, succeed(e))
			}
			ok[0].Id = "nobody's" // was 7
			ok = append(ok, ok[3])
			bad := []fakeFailure{{Id: "2", Code: "InternalError"}}
			return reply(map[string]any{"Successful": ok, "Failed": bad})
		}
	})
	results := publish(t, start(t, f, func(*Settings) {}), messages(f.create("q"), 10))
	for i := range results {
		switch i {
		case 2: // both successful and failed
			want(t, results, i, sinks.Unknown, sinks.ScopeMessage, "2 times")
		case 4: // successful twice
			want(t, results, i, sinks.Unknown, sinks.ScopeMessage, "2 times")
		case 7, 8, 9:
			want(t, results, i, sinks.Unknown, sinks.ScopeMessage, "0 times")
		default:
			want(t, results, i, sinks.Accepted, 0, "")
		}
	}
}

// B19: an error on the third call concerns its ten messages, and the first two calls aren't made again.
func TestB19ErrorOnTheThirdCall(t *testing.T) {
	t.Parallel()
	n := 0
	f := newFake(t, func(f *fake) {
		f.call = func(action string, _ *fakeRequest) *fakeReply {
			if action == "SendMessageBatch" {
				if n++; n == 3 {
					return refuse(500, "InternalFailure", "sorry")
				}
			}
			return nil
		}
	})
	results := publish(t, start(t, f, func(s *Settings) { s.Parallel = 1 }), messages(f.create("q"), 30))
	for i := range results {
		if i < 20 {
			want(t, results, i, sinks.Accepted, 0, "")
		} else {
			want(t, results, i, sinks.Unknown, sinks.ScopeAddress, "InternalFailure: sorry")
		}
	}
	if got := f.sizes(); !slices.Equal(got, []int{10, 10, 10}) {
		t.Errorf("calls of %v entries, want three of 10", got)
	}
}

// What SQS says of a whole call, or what stands for it.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply   *fakeReply
		outcome sinks.Outcome
		scope   sinks.Scope
		text    string
	}{
		"no queue":            {refuse(400, "QueueDoesNotExist", "no such queue"), sinks.Unavailable, sinks.ScopeAddress, "no such queue"},
		"no queue, old name":  {refuse(400, "AWS.SimpleQueueService.NonExistentQueue", "x"), sinks.Unavailable, sinks.ScopeAddress, "NonExistentQueue"},
		"no permission":       {refuse(403, "AccessDenied", "not for you"), sinks.Unavailable, sinks.ScopeAddress, "not for you"},
		"no permission, 2":    {refuse(400, "AccessDeniedException", "not for you"), sinks.Unavailable, sinks.ScopeAddress, "not for you"},
		"no such key":         {refuse(400, "KMS.NotFoundException", "key"), sinks.Unavailable, sinks.ScopeAddress, "KMS"},
		"key throttled":       {refuse(400, "KMS.ThrottlingException", "key"), sinks.Unavailable, sinks.ScopeAddress, "KMS"},
		"throttled":           {refuse(400, "ThrottlingException", "slowly"), sinks.Unavailable, sinks.ScopeAddress, "slowly"},
		"throttled, 403":      {refuse(403, "RequestThrottled", "slowly"), sinks.Unavailable, sinks.ScopeAddress, "slowly"},
		"throttled, 503":      {refuse(503, "SlowDown", "slowly"), sinks.Unavailable, sinks.ScopeAddress, "slowly"},
		"throttled, no words": {&fakeReply{429, ""}, sinks.Unavailable, sinks.ScopeAddress, "429"},
		"wrong key id":        {refuse(403, "InvalidClientTokenId", "who are you"), sinks.Unavailable, sinks.ScopeSink, "who are you"},
		"wrong signature":     {refuse(403, "SignatureDoesNotMatch", "who are you"), sinks.Unavailable, sinks.ScopeSink, "who are you"},
		"expired":             {refuse(400, "ExpiredTokenException", "too old"), sinks.Unavailable, sinks.ScopeSink, "too old"},
		"another service":     {&fakeReply{404, "<html>not here</html>"}, sinks.Unavailable, sinks.ScopeSink, "404"},
		"a proxy's login":     {&fakeReply{302, "<html>log in</html>"}, sinks.Unavailable, sinks.ScopeSink, "302"},
		"server error":        {refuse(500, "InternalFailure", "sorry"), sinks.Unknown, sinks.ScopeSink, "sorry"},
		"overloaded":          {refuse(503, "ServiceUnavailable", "sorry"), sinks.Unknown, sinks.ScopeSink, "sorry"},
		"bad gateway":         {&fakeReply{502, "<html>bad gateway</html>"}, sinks.Unknown, sinks.ScopeSink, "502"},
		"request time-out":    {&fakeReply{408, ""}, sinks.Unknown, sinks.ScopeSink, "408"},
		"no JSON":             {&fakeReply{200, "{"}, sinks.Unknown, sinks.ScopeSink, "deserializ"},
		"nothing":             {&fakeReply{200, "{}"}, sinks.Unknown, sinks.ScopeSink, "0 times"},
		"text for a boolean": {&fakeReply{200, `{"Failed":[{"Id":"0","Code":"InternalError","SenderFault":"true"}]}`}, sinks.Unknown, sinks.ScopeSink,
			"deserializ"},
		"something new":       {refuse(400, "NewInSeptember", "what now"), sinks.Failed, sinks.ScopeMessage, "what now"},
		"invalid":             {refuse(400, "InvalidParameterValue", "no"), sinks.Rejected, sinks.ScopeMessage, "InvalidParameterValue: no"},
		"too long":            {refuse(400, "BatchRequestTooLong", "no"), sinks.Rejected, sinks.ScopeMessage, "the limit as far as it is known is 1048576"},
		"too long, no words":  {&fakeReply{413, ""}, sinks.Rejected, sinks.ScopeMessage, "413"},
		"a very long message": {refuse(400, "InvalidParameterValue", strings.Repeat("x", 100_000)), sinks.Rejected, sinks.ScopeMessage, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fake) {
				f.call = func(action string, _ *fakeRequest) *fakeReply {
					if action == "SendMessageBatch" {
						return c.reply
					}
					return nil
				}
			})
			s := start(t, f, func(*Settings) {})
			results := publish(t, s, messages(f.create("q"), 3))
			for i := range results {
				want(t, results, i, c.outcome, c.scope, c.text)
				if n := len(results[i].Err.Error()); n > 1000 {
					t.Errorf("an error of %d bytes", n)
				}
			}
		})
	}
}

// The same codes for one entry in a reply of 200.
func TestEntryErrors(t *testing.T) {
	t.Parallel()
	for code, w := range map[string]class{
		"InternalError": failed, "ServiceUnavailable": failed, "SomethingNew": failed, "InvalidBatchEntryId": failed, "": failed,
		"InvalidMessageContents": rejected, "InvalidParameterValue": rejected, "InvalidAttributeValue": rejected, "MissingParameter": rejected,
		"RequestThrottled": refusesQueue, "ThrottlingException": refusesQueue, "Throttling": refusesQueue, "OverLimit": refusesQueue,
		"KmsThrottled": refusesQueue, "KMS.ThrottlingException": refusesQueue, "KmsAccessDenied": refusesQueue, "KMS.DisabledException": refusesQueue,
		"AWS.SimpleQueueService.NonExistentQueue": refusesQueue, "AccessDenied": refusesQueue, "UnrecognizedClientException": refusesAll,
	} {
		for _, fault := range []bool{false, true} {
			f := newFake(t, func(f *fake) {
				f.entry = func(string, *fakeEntry) *fakeFailure { return &fakeFailure{Code: code, SenderFault: fault} }
			})
			results := publish(t, start(t, f, func(*Settings) {}), messages(f.create("q"), 1))
			want(t, results, 0, w.outcome, w.scope, code)
		}
	}
}

// A body that arrived changed hasn't arrived; its nine neighbours have.
func TestMD5Mismatch(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(f *fake) {
		f.call = func(action string, in *fakeRequest) *fakeReply {
			if action != "SendMessageBatch" {
				return nil
			}
			var ok []fakeSuccess
			for _, e := range in.Entries {
				if e.Id == "4" {
					e.MessageBody += " "
				}
				ok = append(ok, succeed(e))
			}
			return reply(map[string]any{"Successful": ok})
		}
	})
	results := publish(t, start(t, f, func(*Settings) {}), messages(f.create("q"), 10))
	for i := range results {
		if i == 4 {
			want(t, results, i, sinks.Unknown, sinks.ScopeMessage, "MD5")
		} else {
			want(t, results, i, sinks.Accepted, 0, "")
		}
	}
}

// A refusal of a whole call that is about one entry: the other nine get through, and nothing is in the queue twice.
func TestRefusedCallIsHalved(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"InvalidParameterValue", "InvalidMessageContents", "BatchRequestTooLong", "NewInSeptember"} {
		f := newFake(t, func(f *fake) {
			f.call = func(action string, in *fakeRequest) *fakeReply {
				if slices.ContainsFunc(in.Entries, func(e *fakeEntry) bool { return e.attributes()["relay-id"] == "shop/6" }) {
					return refuse(400, code, "one of them is bad")
				}
				return nil
			}
		})
		results := publish(t, start(t, f, func(*Settings) {}), messages(f.create("q"), 10))
		for i := range results {
			if i != 6 {
				want(t, results, i, sinks.Accepted, 0, "")
			} else if o := results[i].Outcome; o != sinks.Rejected && o != sinks.Failed {
				t.Errorf("%s: result 6: got %v (%v), want rejected or failed", code, o, results[i].Err)
			}
		}
		if ids := f.ids("q"); len(ids) != 9 || len(slices.Compact(ids)) != 9 {
			t.Errorf("%s: the queue has %v, want nine messages", code, ids)
		}
	}
}

// A queue that was deleted under the sink is an outage of its own, and works as soon as it is back. A queue that is there
// is looked up once.
func TestB14QueueComesAndGoes(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(*fake) {})
	s := start(t, f, func(*Settings) {})
	for round := range 3 {
		for range 2 {
			want(t, publish(t, s, messages("late", 1)), 0, sinks.Unavailable, sinks.ScopeAddress, "QueueDoesNotExist")
		}
		f.create("late")
		for range 3 {
			want(t, publish(t, s, messages("late", 1)), 0, sinks.Accepted, 0, "")
		}
		f.mu.Lock()
		delete(f.places, "late")
		if f.asked != round+1 {
			t.Errorf("round %d: the URL was found %d times, want once for each life of the queue", round, f.asked)
		}
		f.mu.Unlock()
	}
}
