package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// job returns one that is in order but for what change does to it.
func job(change func(*Job)) Job {
	j := Job{Kind: "k", Payload: json.RawMessage(`{}`)}
	change(&j)
	return j
}

func payload(text string) Job {
	return job(func(j *Job) { j.Payload = json.RawMessage(text) })
}

func header(name string, value any) Job {
	return job(func(j *Job) { j.Headers = map[string]any{"good": "1", name: value} })
}

type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, errors.New("s3cr3t") }

func TestInvalidJobs(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	for _, c := range []struct {
		job  Job
		want string
	}{
		{job(func(j *Job) { j.Kind = "" }), `kind "": must not be empty`},
		{job(func(j *Job) { j.Kind = strings.Repeat("k", 256) }), `kind "` + strings.Repeat("k", 60) + `"…: must be at most 255 bytes`},
		{job(func(j *Job) { j.Kind = "a\xff" }), `kind "a\xff": must be valid UTF-8`},
		{job(func(j *Job) { j.Kind = "a\x00" }), `kind "a\x00": must not hold NUL, which Postgres can't store`},
		{job(func(j *Job) { j.Key = strings.Repeat("é", 513) }), `key "` + strings.Repeat("é", 30) + `"…: must be at most 1024 bytes`},
		{job(func(j *Job) { j.Key = "\x00" }), `key "\x00": must not hold NUL, which Postgres can't store`},
		{job(func(j *Job) { j.MaxAttempts = -1 }), `max_attempts -1: must be from 0, the table's default, to 2147483647`},
		{job(func(j *Job) { j.MaxAttempts = math.MaxInt32 + 1 }), `max_attempts 2147483648: must be from 0, the table's default, to 2147483647`},
		{job(func(j *Job) { j.RunAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }), `run_at "0000-01-01T00:00:00Z": must be in the years 1 to 294275`},
		{job(func(j *Job) { j.RunAt = time.Date(294276, 1, 1, 0, 0, 0, 0, time.UTC) }), `run_at "294276-01-01T00:00:00Z": must be in the years 1 to 294275`},

		{job(func(j *Job) { j.Payload = nil }), `payload: must be there, or body; JSON null is json.RawMessage("null")`},
		{job(func(j *Job) { j.Body = []byte{} }), `payload: must not be there together with body`},
		{job(func(j *Job) { j.Payload = []byte(`{}`) }), `payload: must not be []byte: use json.RawMessage for JSON text, or body for other bytes`},
		{job(func(j *Job) { j.Payload = failing{} }), `payload: must be encodable as JSON: the method of outbox.failing fails`},
		{job(func(j *Job) { j.Payload = func() {} }), `payload: must be encodable as JSON, which func() is not`},
		{job(func(j *Job) { j.Payload = math.NaN() }), `payload: must be encodable as JSON: it holds NaN, an infinity or a cycle`},
		{job(func(j *Job) { j.Payload = map[string]any{"a": []string{"x", "\xff"}} }), `payload at $.a[1]: must be valid UTF-8`},
		{job(func(j *Job) { j.Payload = struct{ A string }{"\x00"} }), `payload at $.A: must not hold \u0000, which Postgres can't store`},
		{job(func(j *Job) { j.Payload, j.Body = nil, make([]byte, MaxPayload+1) }), `body: is 134217729 bytes, must be at most 128 MiB`},

		{payload(``), `payload: must be JSON, not empty; for no payload leave it nil`},
		{payload(`{`), `payload at byte 1: must be valid JSON`},
		{payload(`{"a":1}x`), `payload at byte 8: must be valid JSON`},
		{payload("\ufeff{}"), `payload at byte 1: must be valid JSON`},
		{payload("\"a\nb\""), `payload at byte 3: must be valid JSON`},
		{payload(deep), `payload at $` + strings.Repeat("[0]", 66) + `…: must have at most 1000 levels of arrays and objects`},
		{payload(`{"a":"x\u0000y"}`), `payload at $.a: must not hold \u0000, which Postgres can't store`},
		{payload(`{"x\u0000":1}`), `payload at $: a member's name must not hold \u0000, which Postgres can't store`},
		{payload(`{"a":["\u0000"]}`), `payload at $.a[0]: must not hold \u0000, which Postgres can't store`},
		{payload(`{"a b":{"c":[1, {"d":"\u0000"}]}}`), `payload at $["a b"].c[1].d: must not hold \u0000, which Postgres can't store`},
		{payload(`"\ud800"`), `payload at $: must not hold half a surrogate pair, which Postgres can't store`},
		{payload(`"\udc00"`), `payload at $: must not hold half a surrogate pair, which Postgres can't store`},
		{payload(`"\ud83d\u0041"`), `payload at $: must not hold half a surrogate pair, which Postgres can't store`},
		{payload(`"\ud83d\ud83d\ude00"`), `payload at $: must not hold half a surrogate pair, which Postgres can't store`},
		{payload(`"\ud83d\\ude00"`), `payload at $: must not hold half a surrogate pair, which Postgres can't store`},
		{payload("[\"\xff\"]"), `payload at $[0]: must be valid UTF-8`},
		{payload("{\"\xed\xa0\x80\":1}"), `payload at $: a member's name must be valid UTF-8`},
		{payload(`[1,1e131072]`), `payload at $[1]: ` + numberLimits},
		{payload(`[1e-16384]`), `payload at $[0]: ` + numberLimits},
		{payload(`1e99999999999999999999`), `payload at $: ` + numberLimits},

		{header("relay-id", "x"), `headers at "relay-id": the name must not begin with relay-: those are the relay's own`},
		{header("Relay-X", "x"), `headers at "Relay-X": the name must not begin with relay-: those are the relay's own`},
		{header("", "x"), `headers at "": the name must not be empty`},
		{header("a\x00", "x"), `headers at "a\x00": the name must not hold NUL, which Postgres can't store`},
		{header(strings.Repeat("n", 256), "x"), `headers at "` + strings.Repeat("n", 60) + `"…: the name must be at most 255 bytes`},
		{header("n", nil), `headers at "n": the value must not be nil: leave the header out`},
		{header("n", (*string)(nil)), `headers at "n": the value must be a string, boolean or number, not *string`},
		{header("n", []string{"s3cr3t"}), `headers at "n": the value must be a string, boolean or number, not []string`},
		{header("n", map[string]any{}), `headers at "n": the value must be a string, boolean or number, not map[string]interface {}`},
		{header("n", []byte("s3cr3t")), `headers at "n": the value must be a string, boolean or number, not []uint8`},
		{header("n", json.RawMessage("null")), `headers at "n": the value must be a string, boolean or number, not json.RawMessage`},
		{header("n", math.NaN()), `headers at "n": the value must be a finite number`},
		{header("n", float32(math.Inf(1))), `headers at "n": the value must be a finite number`},
		{header("n", 1i), `headers at "n": the value must be a string, boolean or number, not complex128`},
		{header("n", "s3cr3t\x00"), `headers at "n": the value must not hold NUL, which Postgres can't store`},
		{header("n", "s3cr3t\xff"), `headers at "n": the value must be valid UTF-8`},
		{header("n", json.Number("")), `headers at "n": the value must be a JSON number`},
		{header("n", json.Number("null")), `headers at "n": the value must be a JSON number`},
		{header("n", json.Number("1e200000")), `headers at "n": the value ` + numberLimits},
	} {
		_, err := check([]Job{job(func(*Job) {}), c.job})
		want := "enqueue: job 1: " + c.want
		if err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
			continue
		}
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%v: isn't ErrInvalid, or shows a value that it must not", err)
		}
		var bad *InvalidError
		if !errors.As(err, &bad) || bad.Index != 1 || bad.Field == "" {
			t.Errorf("%v: got %#v as its data", err, bad)
		}
	}
}

func TestNumbersWrittenOutCount(t *testing.T) {
	t.Parallel()
	bomb := "[" + strings.TrimSuffix(strings.Repeat("1e131071,", 1025), ",") + "]" // 9 kB that jsonb writes as 134 MB
	_, err := check([]Job{payload(bomb)})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want it refused", err)
	}
}

type (
	colour string
	grade  int8
)

func (colour) String() string { return "never this" }

func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{
		{"", `""`}, {`<&>"\é😀` + "\u2028\n", `"<&>\"\\é😀` + "\u2028" + `\u000a"`}, {colour("red"), `"red"`},
		{true, "true"}, {5000000000, "5000000000"}, {grade(-3), "-3"}, {uint64(math.MaxUint64), "18446744073709551615"}, {time.Second, "1000000000"},
		{1.5, "1.5"}, {float32(0.1), "0.1"}, {1e300, "1e+300"}, {math.Copysign(0, -1), "-0"}, {json.Number("123456789012345678901234567890.10"), "123456789012345678901234567890.10"},
	} {
		rows, err := check([]Job{job(func(j *Job) { j.Headers = map[string]any{"b": 1, "a": c.value} })})
		if err != nil {
			t.Errorf("%#v: %v", c.value, err)
			continue
		}
		if want := `{"a":` + c.want + `,"b":1}`; *rows[0].headers != want {
			t.Errorf("%#v: got %s, want %s", c.value, *rows[0].headers, want)
		}
	}
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload any
		want    string
	}{
		{json.RawMessage(`  {"b":1,"a":1.0,"a":2.50} `), `  {"b":1,"a":1.0,"a":2.50} `},
		{json.RawMessage("null"), "null"}, {(*Job)(nil), "null"}, {"<&>\ufffd", "\"<&>\ufffd\""}, {json.RawMessage(`"\ufffd\u0001\ud83d\ude00"`), `"\ufffd\u0001\ud83d\ude00"`},
		{struct {
			ID int64 `json:"id"`
		}{1546130668394913822}, `{"id":1546130668394913822}`},
		{json.RawMessage(`[[],{},[{}],0.5,-0,1e2,true,false,null,""]`), `[[],{},[{}],0.5,-0,1e2,true,false,null,""]`},
	} {
		rows, err := check([]Job{job(func(j *Job) { j.Payload = c.payload })})
		if err != nil {
			t.Errorf("%#v: %v", c.payload, err)
		} else if *rows[0].payload != c.want {
			t.Errorf("%#v: got %s, want %s", c.payload, *rows[0].payload, c.want)
		}
	}
}

func TestStatementsAreSplit(t *testing.T) {
	t.Parallel()
	row1 := func(size, attempts int) row { return row{kind: strings.Repeat("k", size), maxAttempts: attempts} }
	many := make([]row, 2500)
	for _, c := range []struct {
		name string
		rows []row
		want []int
	}{
		{"none", nil, nil},
		{"jobs", many, []int{1000, 1000, 500}},
		{"bytes", []row{row1(5<<20, 0), row1(3<<20, 0), row1(1, 0), row1(9<<20, 0), row1(1, 0)}, []int{2, 1, 1, 1}},
		{"attempts", []row{row1(1, 0), row1(1, 0), row1(1, 3), row1(1, 4), row1(1, 0)}, []int{2, 2, 1}},
	} {
		var got []int
		for rest := c.rows; len(rest) > 0; {
			n := nextStatement(rest)
			got, rest = append(got, n), rest[n:]
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStatementNamesTheTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client      Client
		maxAttempts bool
		want, never string
	}{
		{Client{}, false, `INSERT INTO "jobs" ( kind, key, payload, body, headers, run_at, priority ) SELECT`, "max_attempts"},
		{Client{}, true, `SELECT count(*) FROM "relay_notify"() )`, "--"},
		{Client{Table: `Shop.Jo"bs`}, true, `INSERT INTO "Shop"."Jo""bs" ( kind, key, payload, body, headers, run_at, priority , max_attempts ) SELECT`, "given"},
		{Client{Table: "shop.jobs"}, false, `FROM "shop"."relay_notify"()`, "--"},
		{Client{NoNotify: true}, false, `SELECT count(*) )`, "relay_notify"},
	} {
		got, err := c.client.statement(c.maxAttempts)
		if err != nil || !strings.Contains(got, c.want) || strings.Contains(got, c.never) {
			t.Errorf("%+v: got %s (%v), want it to hold %s and not %s", c.client, got, err, c.want, c.never)
		}
	}
	for _, table := range []string{"a.b.c", ".jobs", "shop.", "a\x00"} {
		if got, err := (Client{Table: table}).statement(false); err == nil {
			t.Errorf("table %q: got %s, want an error", table, got)
		}
	}
}

func ExampleInvalidError() {
	_, err := Enqueue(context.Background(), nil, Job{Kind: "order.created", Payload: map[string]any{"notes": []string{"fine", "a\x00b"}}})
	var bad *InvalidError
	if errors.As(err, &bad) {
		fmt.Println(bad.Field, bad.Path)
	}
	fmt.Println(err)
	// Output:
	// payload $.notes[1]
	// enqueue: job 0: payload at $.notes[1]: must not hold \u0000, which Postgres can't store
}
