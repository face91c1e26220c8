package kafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/sinktest"
)

// load reads settings from an environment as cmd/relay does.
func load(t testing.TB, env map[string]string) *settings {
	t.Helper()
	prefixed := config.Environ{}
	for name, value := range env {
		prefixed["RELAY_KAFKA_"+name] = value
	}
	s := new(settings)
	if problems := config.Decode(prefixed, "RELAY_KAFKA_", s); len(problems) > 0 {
		t.Fatalf("settings: %v", problems)
	}
	return s
}

// open returns a sink with these settings, which the test closes.
func open(t testing.TB, brokers string, env ...map[string]string) *sink {
	t.Helper()
	all := map[string]string{}
	for _, e := range env {
		maps.Copy(all, e)
	}
	s := openUnclosed(t, brokers, all).(*sink)
	t.Cleanup(func() { closeSink(t, s) })
	return s
}

// openUnclosed leaves the closing to somebody else.
func openUnclosed(t testing.TB, brokers string, env map[string]string) sinks.Sink {
	t.Helper()
	all := map[string]string{"BROKERS": brokers}
	maps.Copy(all, env)
	s, err := load(t, all).Open("kafka", testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func closeSink(t testing.TB, s sinks.Sink) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// publish sends a batch under a generous deadline.
func publish(t testing.TB, s sinks.Sink, batch []sinks.Message) []sinks.Result {
	t.Helper()
	return publishIn(t, s, batch, 30*time.Second)
}

func publishIn(t testing.TB, s sinks.Sink, batch []sinks.Message, limit time.Duration) []sinks.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	results := make([]sinks.Result, len(batch))
	s.Publish(ctx, batch, results)
	for i, r := range results {
		if (r.Err == nil) != (r.Outcome == sinks.Accepted) {
			t.Errorf("result %d: %v with error %v", i, r.Outcome, r.Err)
		}
	}
	return results
}

// want fails unless the results from one index to another are as given.
func want(t testing.TB, results []sinks.Result, from, to int, outcome sinks.Outcome, scope sinks.Scope) {
	t.Helper()
	for i := from; i < to; i++ {
		if r := results[i]; r.Outcome != outcome || r.Scope != scope {
			t.Errorf("result %d: got %v of the %v (%v), want %v of the %v", i, r.Outcome, r.Scope, r.Err, outcome, scope)
		}
	}
}

func wantAll(t testing.TB, results []sinks.Result, outcome sinks.Outcome, scope sinks.Scope) {
	t.Helper()
	want(t, results, 0, len(results), outcome, scope)
}

func accepted(t testing.TB, results []sinks.Result) {
	t.Helper()
	wantAll(t, results, sinks.Accepted, sinks.ScopeMessage)
}

// messages makes n messages without a key.
func messages(topic string, n int) []sinks.Message {
	batch := make([]sinks.Message, n)
	for i := range batch {
		batch[i] = sinks.Message{
			ID: fmt.Sprintf("%s/%d", topic, i), Address: topic, Kind: "test", Attempt: 1,
			Time: time.Date(2026, 3, 4, 5, 6, 7, 890_000, time.UTC), Payload: fmt.Appendf(nil, `{"n": %d}`, i),
		}
	}
	return batch
}

// keyed gives all of them one key.
func keyed(batch []sinks.Message, key string) []sinks.Message {
	for i := range batch {
		batch[i].Key = &key
	}
	return batch
}

// client makes a client of another library, for all that isn't the sink.
func client(t testing.TB, brokers string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// realAndFake runs a test on the real broker and on the fake, which must behave alike.
func realAndFake(t *testing.T, f func(t *testing.T, broker string)) {
	t.Helper()
	t.Run("real", func(t *testing.T) { t.Parallel(); f(t, services.Kafka(t)) })
	t.Run("fake", func(t *testing.T) { t.Parallel(); f(t, fake(t, 1).ListenAddrs()[0]) })
}

// topicName makes a name of its own.
func topicName(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if legal.MatchString(string(r)) {
			return r
		}
		return '-'
	}, t.Name())
	return fmt.Sprintf("%.150s-%s", name, strings.ToLower(rand.Text()[:8]))
}

// newTopic makes a topic with settings like "max.message.bytes=1000".
func newTopic(t testing.TB, brokers string, partitions int32, config ...string) string {
	t.Helper()
	name := topicName(t)
	values := map[string]*string{}
	for _, c := range config {
		key, value, _ := strings.Cut(c, "=")
		values[key] = &value
	}
	adm := kadm.NewClient(client(t, brokers))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := adm.CreateTopic(ctx, partitions, 1, values, name); err != nil {
		t.Fatalf("create topic: %v", err)
	}
	for ctx.Err() == nil { // until its leaders know that they are
		offsets, err := adm.ListEndOffsets(ctx, name)
		if err == nil && offsets.Error() == nil && len(offsets[name]) == int(partitions) {
			return name
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the topic doesn't appear")
	return ""
}

// read returns a topic's records and fails unless there are n.
func read(t testing.TB, brokers, topic string, n int) []*kgo.Record {
	t.Helper()
	records := readAll(t, brokers, topic, n)
	if len(records) != n {
		t.Errorf("%d records in topic %s, want %d", len(records), topic, n)
	}
	return records
}

// readAll returns a topic's records, once n are there and none came for a moment.
func readAll(t testing.TB, brokers, topic string, n int) []*kgo.Record {
	t.Helper()
	cl := client(t, brokers, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	var records []*kgo.Record
	last := time.Now()
	for end := last.Add(30 * time.Second); time.Now().Before(end) && (len(records) < n || time.Since(last) < 400*time.Millisecond); {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		fetches := cl.PollFetches(ctx)
		cancel()
		if got := fetches.Records(); len(got) > 0 {
			records, last = append(records, got...), time.Now()
		}
	}
	return records
}

// received is a record in the suite's words.
func received(r *kgo.Record) sinktest.Received {
	out := sinktest.Received{Headers: map[string]any{}, Payload: r.Value}
	if r.Key != nil {
		key := string(r.Key)
		out.Key = &key
	}
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case sinks.HeaderID:
			out.ID = value
		case sinks.HeaderKind:
			out.Kind = value
		case sinks.HeaderTime:
			out.Time = value
		case sinks.HeaderAttempt:
			out.Attempt = value
		case sinks.HeaderReplay:
			out.Replay = value
		default:
			if strings.EqualFold(h.Key, "content-type") {
				out.ContentType = value
			}
			out.Headers[h.Key] = value
		}
	}
	return out
}

// ids returns the message ids of records.
func ids(records []*kgo.Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = received(r).ID
	}
	return out
}

// number is the n of a message that messages made.
func number(id string) int {
	n, _ := strconv.Atoi(id[strings.LastIndex(id, "/")+1:])
	return n
}
