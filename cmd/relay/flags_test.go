package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/outbox"
)

type jsonRaw = json.RawMessage

func TestTimeFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"2h": -2 * time.Hour, "+90s": 90 * time.Second, "0s": 0} {
		var f timeFlag
		if err := f.Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := time.Until(f.t); got > want || got < want-time.Minute {
			t.Errorf("%s is %v from now, want %v", text, got, want)
		}
	}
	var f timeFlag
	if err := f.Set("2031-02-03T04:05:06.5+01:00"); err != nil || f.t.UTC().Format(time.RFC3339Nano) != "2031-02-03T03:05:06.5Z" {
		t.Errorf("%v, %v", f.t, err)
	}
	for _, text := range []string{"", "2", "-2h", "2031-02-03", "yesterday", "+"} {
		if err := f.Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// collect reads lines as `enqueue -` does.
func collect(lines string) (jobs []outbox.Job, chunks int, err error) {
	err = readJobs(strings.NewReader(lines), func(more ...outbox.Job) error {
		jobs, chunks = append(jobs, more...), chunks+1
		return nil
	})
	return jobs, chunks, err
}

func TestJobLines(t *testing.T) {
	t.Parallel()
	jobs, _, err := collect(`{"kind":"a","key":"k","payload":{"id":1546130668394913822},"headers":{"n":5000000000,"s":"x"},"priority":-3,"max_attempts":9,"run_at":"2031-02-03T04:05:06Z"}` +
		"\n\n  \n" + `{"kind":"b","body":"AAEC"}` + "\n" + `{"kind":"c","payload":null,"key":null}`)
	if err != nil || len(jobs) != 3 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	a, b, c := jobs[0], jobs[1], jobs[2]
	if a.Key != "k" || string(a.Payload.(jsonRaw)) != `{"id":1546130668394913822}` ||
		a.Headers["n"].(interface{ String() string }).String() != "5000000000" || a.Priority != -3 || a.MaxAttempts != 9 || a.RunAt.Year() != 2031 {
		t.Errorf("first job: %+v", a)
	}
	if string(b.Body) != "\x00\x01\x02" || b.Payload != nil {
		t.Errorf("second job: %+v", b)
	}
	if string(c.Payload.(jsonRaw)) != "null" || c.Key != "" {
		t.Errorf("third job: %+v", c)
	}
}

func TestBadJobLines(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		`{broken`:                                "not a JSON object",
		`[1]`:                                    "object",
		`"x"`:                                    "object",
		`{"kind":"a","payload":1} x`:             "more than one",
		`{"kind":"a","paylod":1}`:                "paylod",
		`{"kind":1,"payload":1}`:                 "number",
		`{"kind":"a\ud800","payload":1}`:         "surrogate",
		`{"kind":"a","key":"","payload":1}`:      "key is empty",
		`{"kind":"a","payload":1,"headers":[1]}`: "headers",
		`{"kind":"a","payload":1,"headers":{"x":"\udc00"}}`:   "surrogate",
		`{"kind":"a","body":"%%"}`:                            "base64",
		`{"kind":"a","payload":1,"priority":99999}`:           "priority",
		`{"kind":"a","payload":1,"run_at":"soon"}`:            "run_at",
		"{\"kind\":\"\xff\",\"payload\":1}":                   "UTF-8",
		`{"kind":"a","payload":"` + "\xc3" + `"}`:             "UTF-8",
		`{"kind":"a","payload":1,"max_attempts":1.5}`:         "max_attempts",
		`{"kind":"a","payload":1}{"kind":"a","payload":true}`: "more than one",
	} {
		_, _, err := collect(`{"kind":"fine","payload":1}` + "\n" + line + "\n")
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want line 2 and %q", line, err, says)
		}
	}
}

func TestJobLinesInChunks(t *testing.T) {
	t.Parallel()
	jobs, chunks, err := collect(strings.Repeat(`{"kind":"a","payload":1}`+"\n", 2*chunkJobs+1))
	if err != nil || len(jobs) != 2*chunkJobs+1 || chunks != 3 {
		t.Errorf("%d jobs in %d chunks, %v", len(jobs), chunks, err)
	}
	_, _, err = collect(`{"kind":"a","payload":"` + strings.Repeat("\u00e9\\ud83d\\ude00", 100_000) + `"}`)
	if err != nil {
		t.Errorf("a long line with surrogate pairs: %v", err)
	}
	// The line's number survives the chunks before it.
	n := 0
	err = readJobs(strings.NewReader(strings.Repeat(`{"kind":"a","payload":1}`+"\n\n", chunkJobs+5)), func(more ...outbox.Job) error {
		if n++; n == 2 {
			return &outbox.InvalidError{Index: 2, Field: "kind", Rule: "is wrong"}
		}
		return nil
	})
	if err == nil || err.Error() != "line 2005: kind: is wrong" {
		t.Errorf("error %v", err)
	}
}

func TestReadFails(t *testing.T) {
	t.Parallel()
	broken := io.MultiReader(strings.NewReader(`{"kind":"a","payload":1}`+"\n"), errReader{})
	err := readJobs(broken, func(...outbox.Job) error { return nil })
	if !errors.Is(err, errTest) {
		t.Errorf("error %v", err)
	}
}

var errTest = errors.New("test")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errTest }

func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\n\tb\x1b[31mc\x07 d"); got != "a b\uFFFD[31mc\uFFFD d" {
		t.Errorf("%q", got)
	}
}
