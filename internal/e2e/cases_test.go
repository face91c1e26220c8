package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// everywhere is a place on each broker, and a kind "all" that goes to all three.
type everywhere struct {
	outlets map[string]outlet
	env     settings
	to      []string
}

func onEveryBroker(t *testing.T) everywhere { return onEveryBrokerBut(t, "", "") }

// onEveryBrokerBut reaches one of them at another address.
func onEveryBrokerBut(t *testing.T, one, addr string) everywhere {
	t.Helper()
	at := map[string]string{one: addr}
	all := everywhere{outlets: map[string]outlet{"kafka": kafkaOutlet(t, at["kafka"]), "rabbitmq": rabbitOutlet(t, at["rabbitmq"]), "sqs": sqsOutlet(t, at["sqs"])}, env: settings{}}
	for _, name := range slices.Sorted(maps.Keys(all.outlets)) {
		all.env = all.env.with(all.outlets[name].settings)
		all.to = append(all.to, all.outlets[name].to)
	}
	all.env = all.env.with(settings{"ROUTES": routes("all", all.to)})
	return all
}

// each reads n messages of every broker and holds them by id.
func (all everywhere) each(t *testing.T, n int, look func(t *testing.T, broker string, got map[string][]seen)) {
	t.Helper()
	for name, o := range all.outlets {
		got := map[string][]seen{}
		messages := o.read(t, func(s []seen) bool { return len(s) >= n })
		if len(messages) != n {
			t.Errorf("%s: %d messages, want %d", name, len(messages), n)
		}
		for _, m := range messages {
			got[m.id] = append(got[m.id], m)
		}
		look(t, name, got)
	}
}

// sendAgain has every finished job sent once more, everywhere.
const sendAgain = `UPDATE jobs SET status = 'ready', attempts = 0, delivered = NULL, run_at = now() WHERE status = 'done'`

// B02: what arrives is what was stored, to the byte, on every broker and at every attempt: digits, the form of numbers,
// characters that other encoders escape.
func TestB02PayloadsArriveAsStored(t *testing.T) {
	t.Parallel()
	db, all := testdb.New(t), onEveryBroker(t)
	for _, p := range []string{`{"id":1546130668394913822}`, `{"n":123456789012345678901234567890}`, `{"b":1,"a":1.0,"a":2.50,"e":1e2,"z":-0}`,
		`{"s":"<&>\u2028é😀"}`, `[1, 0.1000, 1e-7]`, `"bare"`, `17`, `true`, `{"deep":{"x":[{}]}}`, `"\u0001\\u0000"`} {
		db.Exec(t, `INSERT INTO jobs (kind, payload) VALUES ('all', $1::text::jsonb)`, p)
	}
	stored := map[string][]byte{}
	for _, row := range testdb.Column[string](t, db, `SELECT id || ' ' || payload::text FROM jobs`) {
		id, text, _ := strings.Cut(row, " ")
		stored[db.Schema+"/"+id] = []byte(text)
	}
	start(t, db, all.env)
	s := newShop(t, db)
	s.drained(generous)
	if n := db.Exec(t, sendAgain); n != 10 {
		t.Fatalf("%d jobs are sent again", n)
	}
	s.drained(generous)
	all.each(t, 20, func(t *testing.T, broker string, got map[string][]seen) {
		for id, want := range stored {
			if len(got[id]) != 2 {
				t.Errorf("%s: %s arrived %d times, want twice", broker, id, len(got[id]))
			}
			for _, m := range got[id] {
				if !bytes.Equal(m.payload, want) {
					t.Errorf("%s: got %s, stored is %s", broker, m.payload, want)
				}
			}
		}
	})
}

// B03: JSON null, an empty object, an empty string and no bytes at all are four things. A broker that has no empty message
// gets none, at the first attempt and with the reason.
func TestB03KindsOfNothing(t *testing.T) {
	t.Parallel()
	db, all := testdb.New(t), onEveryBroker(t)
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO jobs (kind) VALUES ('all')`); err == nil {
		t.Error("a job without payload and body is stored")
	}
	for _, p := range []string{`null`, `{}`, `""`} {
		db.Exec(t, `INSERT INTO jobs (kind, key, payload) VALUES ('all', 'k', $1::text::jsonb)`, p)
	}
	db.Exec(t, `INSERT INTO jobs (kind, key, body) VALUES ('all', 'k', '')`)
	ids := testdb.Column[string](t, db, `SELECT $1 || '/' || id FROM jobs ORDER BY id`, db.Schema)
	start(t, db, all.env)
	eventually(t, "three are done, one dead", func() error {
		if got := newShop(t, db).statuses(); got["done"] != 3 || got["dead"] != 1 {
			return fmt.Errorf("statuses: %v", got)
		}
		return nil
	})
	got := value[string](t, db, `SELECT attempts || ' ' || cardinality(delivered) || ' ' || last_error FROM jobs WHERE status = 'dead'`)
	if !strings.HasPrefix(got, "1 2 sqs:") || !strings.Contains(got, "an empty body can't be sent") {
		t.Errorf("the dead job: %s", got)
	}
	for name, o := range all.outlets {
		n := map[bool]int{true: 3, false: 4}[name == "sqs"]
		arrived := map[string]string{}
		for _, m := range o.read(t, func(s []seen) bool { return len(s) >= n }) {
			arrived[m.id] = fmt.Sprintf("%q %v", m.payload, m.payload == nil)
		}
		want := map[string]string{ids[0]: `"null" false`, ids[1]: `"{}" false`, ids[2]: `"\"\"" false`}
		if name != "sqs" {
			want[ids[3]] = `"" false` // on Kafka an empty value, which is no tombstone
		}
		if !maps.Equal(arrived, want) {
			t.Errorf("%s: got %v, want %v", name, arrived, want)
		}
	}
}

// B08: two batches of jobs that can't be sent lie in front. The good ones behind them pass, each bad one says what is
// wrong with it, and the log stays short.
func TestB08OddRowsInFront(t *testing.T) {
	t.Parallel()
	db, all := testdb.New(t), onEveryBroker(t)
	bad := []string{`{"x": null}`, `{"x": []}`, `{"x": {"y": 1}}`, `{"Relay-Id": "z"}`}
	for _, h := range bad {
		db.Exec(t, `INSERT INTO jobs (kind, payload, headers) SELECT 'all', '1', $1::jsonb FROM generate_series(1, 25)`, h)
	}
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT 'all', E'a\nkey\t' || g, '2' FROM generate_series(1, 100) g`)
	p := start(t, db, all.env.with(settings{"BATCH_SIZE": "50", "WORKERS": "1"}))
	eventually(t, "100 are done, 100 dead", func() error {
		if got := newShop(t, db).statuses(); got["done"] != 100 || got["dead"] != 100 {
			return fmt.Errorf("statuses: %v", got)
		}
		return nil
	})
	reasons := testdb.Column[string](t, db, `SELECT DISTINCT last_error FROM jobs WHERE status = 'dead' AND attempts = 1`)
	for _, want := range []string{`header "x": is null`, `header "x": is an array`, `header "x": is an object`, `header "Relay-Id"`} {
		if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, want) }) {
			t.Errorf("no reason says %s: %q", want, reasons)
		}
	}
	all.each(t, 100, func(t *testing.T, broker string, got map[string][]seen) {
		for _, m := range got {
			if len(m) != 1 || m[0].key == nil || !strings.HasPrefix(*m[0].key, "a\nkey\t") {
				t.Errorf("%s: got %d with key %q", broker, len(m), str(m[0].key))
			}
		}
	})
	if n := strings.Count(p.output(), "\n"); n > 60 {
		t.Errorf("%d lines of log for 100 jobs that can't be sent", n)
	}
}

// B18: headers of every type, written by plain SQL, on every broker at once; and values that no header can have.
func TestB18HeadersOnEveryBroker(t *testing.T) {
	t.Parallel()
	db, all := testdb.New(t), onEveryBroker(t)
	db.Exec(t, `INSERT INTO jobs (kind, payload, headers) VALUES ('all', '1', '{"n":1,"n":2,"big":5000000000,"f":1.5,"t":true,"u":"é😀","e":"","long":123456789012345678901234567890}')`)
	for _, h := range []string{`{"good": "1", "z": null}`, `{"good": "1", "l": ["a", "b"]}`, `{"good": "1", "o": {"x": 1}}`, `{"good": "1", "relay-attempt": 9}`} {
		db.Exec(t, `INSERT INTO jobs (kind, payload, headers) VALUES ('all', '2', $1::jsonb)`, h)
	}
	start(t, db, all.env)
	eventually(t, "one is done, four dead", func() error {
		if got := newShop(t, db).statuses(); got["done"] != 1 || got["dead"] != 4 {
			return fmt.Errorf("statuses: %v", got)
		}
		return nil
	})
	for i, name := range []string{"z", "l", "o", "relay-attempt"} {
		if got := value[string](t, db, `SELECT attempts || last_error FROM jobs WHERE status = 'dead' ORDER BY id OFFSET $1 LIMIT 1`, i); got[0] != '1' || !strings.Contains(got, fmt.Sprintf("header %q", name)) {
			t.Errorf("dead job %d: %s", i, got)
		}
	}
	want := map[string]string{"n": "2", "big": "5000000000", "f": "1.5", "t": "true", "u": "é😀", "e": "", "long": "123456789012345678901234567890"}
	all.each(t, 1, func(t *testing.T, broker string, got map[string][]seen) {
		for id, m := range got {
			if have := m[0].headers; !maps.Equal(have, want) || !strings.HasPrefix(id, db.Schema+"/") {
				t.Errorf("%s: %s has %v, want %v", broker, id, have, want)
			}
		}
	})
}

// B24: one broker of three is away. The others get every job once, at once; it gets each when it is back.
func TestB24OneBrokerOfThreeIsAway(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"kafka", "rabbitmq", "sqs"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			l := map[string]func(*testing.T) *line{"kafka": kafkaLine, "rabbitmq": rabbitLine, "sqs": sqsLine}[broken](t)
			db, all := testdb.New(t), onEveryBrokerBut(t, broken, l.addr)
			l.cut()
			p := start(t, db, all.env)
			s := newShop(t, db)
			s.trade(50, "all")
			eventually(t, "two of three have each", func() error {
				if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE cardinality(delivered) = 2 AND status = 'ready' AND attempts = 0`); n != 50 {
					return fmt.Errorf("%d have", n)
				}
				return nil
			})
			if got := p.metric("relay_sink_up", "sink="+broken); got != 0 {
				t.Errorf("relay_sink_up of %s: %v", broken, got)
			}
			l.heal()
			s.drained(generous)
			for name, o := range all.outlets {
				if n := s.arrived(o, "all"); n != 0 {
					t.Errorf("%s: %d duplicates", name, n)
				}
			}
			if got := s.attempts(); !slices.Equal(got, []int{1}) {
				t.Errorf("attempts: %v", got)
			}
		})
	}
}
