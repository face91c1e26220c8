package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake is an SQS server in memory, with the rules of the real one. Emulators check fewer of them, and none gives the
// replies that this one can be told to give.
type fake struct {
	url   string
	limit int // bytes of a message and of a call

	// call may answer a whole call instead of the fake, entry refuse one entry; nil leaves it to the rules.
	call  func(action string, in *fakeRequest) *fakeReply
	entry func(queue string, e *fakeEntry) *fakeFailure

	mu     sync.Mutex
	places map[string][]*fakeEntry // what a queue has
	dedup  map[string]bool
	calls  []*fakeRequest // those that send
	asked  int            // for a queue's URL
}

type fakeRequest struct {
	QueueName, QueueUrl string
	Entries             []*fakeEntry
}

type fakeEntry struct {
	Id, MessageBody                        string
	MessageGroupId, MessageDeduplicationId string
	MessageAttributes                      map[string]struct{ DataType, StringValue string }
}

func (e *fakeEntry) attributes() map[string]string {
	all := map[string]string{}
	for name, v := range e.MessageAttributes {
		all[name] = v.StringValue
	}
	return all
}

func (e *fakeEntry) size() int {
	n := len(e.MessageBody)
	for name, v := range e.MessageAttributes {
		n += len(name) + len(v.DataType) + len(v.StringValue)
	}
	return n
}

type fakeReply struct {
	status int
	body   string
}

type fakeFailure struct {
	Id, Code, Message string
	SenderFault       bool
}

type fakeSuccess struct{ Id, MessageId, MD5OfMessageBody string }

func newFake(t testing.TB, change func(*fake)) *fake {
	t.Helper()
	f := &fake{limit: 1 << 20, places: map[string][]*fakeEntry{}, dedup: map[string]bool{}}
	change(f)
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fake) create(queue string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places[queue] = []*fakeEntry{}
	return queue
}

func (f *fake) received(queue string) []*fakeEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*fakeEntry(nil), f.places[queue]...)
}

func (f *fake) sizes() (sizes []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		sizes = append(sizes, len(c.Entries))
	}
	return sizes
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	in := &fakeRequest{}
	if err := json.Unmarshal(body, in); err != nil {
		panic(err)
	}
	if action == "SendMessageBatch" {
		f.mu.Lock()
		f.calls = append(f.calls, in)
		f.mu.Unlock()
	}
	var reply *fakeReply
	if f.call != nil {
		reply = f.call(action, in)
	}
	if reply == nil {
		reply = f.answer(action, in)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(reply.status)
	_, _ = io.WriteString(w, reply.body)
}

func refuse(status int, code, message string) *fakeReply {
	b, _ := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": message})
	return &fakeReply{status, string(b)}
}

func reply(v any) *fakeReply {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &fakeReply{http.StatusOK, string(b)}
}

func (f *fake) answer(action string, in *fakeRequest) *fakeReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := in.QueueName + in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]
	if _, ok := f.places[queue]; !ok && action != "ListQueues" {
		return refuse(400, "QueueDoesNotExist", "The specified queue does not exist.")
	}
	switch action {
	case "GetQueueUrl":
		f.asked++
		return reply(map[string]string{"QueueUrl": "https://queue.invalid/000000000000/" + queue})
	case "GetQueueAttributes":
		return reply(map[string]any{"Attributes": map[string]string{"MaximumMessageSize": strconv.Itoa(f.limit)}})
	case "SendMessageBatch":
		return f.send(queue, in.Entries)
	default:
		return reply(struct{}{})
	}
}

var fakeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func (f *fake) send(queue string, entries []*fakeEntry) *fakeReply {
	total, ids := 0, map[string]bool{}
	for _, e := range entries {
		total += e.size()
		if ids[e.Id] || !fakeID.MatchString(e.Id) {
			return refuse(400, "InvalidBatchEntryId", e.Id)
		}
		ids[e.Id] = true
	}
	if total > f.limit {
		return refuse(400, "BatchRequestTooLong", fmt.Sprintf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", f.limit, total))
	}
	if len(entries) == 0 || len(entries) > 10 {
		return refuse(400, "TooManyEntriesInBatchRequest", "")
	}
	var out struct {
		Successful []fakeSuccess
		Failed     []*fakeFailure
	}
	for _, e := range entries {
		bad := f.rules(queue, e)
		if bad == nil && f.entry != nil {
			bad = f.entry(queue, e)
		}
		if bad != nil {
			bad.Id = e.Id
			out.Failed = append(out.Failed, bad)
			continue
		}
		if id := queue + " " + e.MessageDeduplicationId; e.MessageDeduplicationId == "" || !f.dedup[id] {
			f.places[queue] = append(f.places[queue], e)
			f.dedup[id] = true
		}
		out.Successful = append(out.Successful, succeed(e))
	}
	return reply(out)
}

func succeed(e *fakeEntry) fakeSuccess {
	sum := md5.Sum([]byte(e.MessageBody))
	return fakeSuccess{Id: e.Id, MessageId: "m", MD5OfMessageBody: hex.EncodeToString(sum[:])}
}

var (
	fakeChars = regexp.MustCompile(`^[\t\n\r\x{20}-\x{D7FF}\x{E000}-\x{FFFC}\x{FFFD}\x{10000}-\x{10FFFF}]+$`)
	fakeName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	fakeGroup = regexp.MustCompile(`^[!-~]{1,128}$`)
)

// rules are those for one entry.
func (f *fake) rules(queue string, e *fakeEntry) *fakeFailure {
	invalid := func(code, message string) *fakeFailure {
		return &fakeFailure{Code: code, Message: message, SenderFault: true}
	}
	if e.MessageBody == "" {
		return invalid("MissingParameter", "The request must contain the parameter MessageBody.")
	}
	if !fakeChars.MatchString(e.MessageBody) {
		return invalid("InvalidMessageContents", "Invalid binary character was found in the message body.")
	}
	if len(e.MessageAttributes) > 10 {
		return invalid("InvalidParameterValue", "Number of message attributes exceeds the allowed maximum [10].")
	}
	for name, v := range e.MessageAttributes {
		lower := strings.ToLower(name)
		if !fakeName.MatchString(name) || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") ||
			strings.Contains(name, "..") || strings.Trim(name, ".") != name {
			return invalid("InvalidParameterValue", "Invalid attribute name.")
		}
		if !fakeChars.MatchString(v.StringValue) || v.DataType != "String" {
			return invalid("InvalidParameterValue", "Invalid attribute value.")
		}
	}
	if fifo := strings.HasSuffix(queue, ".fifo"); fifo != (e.MessageGroupId != "") || fifo != (e.MessageDeduplicationId != "") {
		return invalid("InvalidParameterValue", "The parameters for FIFO go with FIFO queues.")
	} else if fifo && (!fakeGroup.MatchString(e.MessageGroupId) || !fakeGroup.MatchString(e.MessageDeduplicationId)) {
		return invalid("InvalidParameterValue", "Only alphanumeric and punctuation characters, 1 to 128.")
	}
	return nil
}
