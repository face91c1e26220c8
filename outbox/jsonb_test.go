package outbox

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
)

// pieces are what random texts are made of: each is near some rule.
var pieces = []string{
	`{`, `}`, `[`, `]`, `,`, `:`, ` `, `"`, `\`, `u`, `"a"`, `"a":`, `null`, `true`, `false`, `0`, `-`, `1`, `.`, `5`, `e`, `E+`, `e-`, `00`,
	`131071`, `131072`, `16383`, `16384`, `\u0000`, `\u0001`, `\ud83d`, `\ude00`, `\ud800`, `\udc00`, `\n`, `\x`, `\\`, `é`, "\xff", "\xed\xa0\x80", "\x00", "\x01", "\t", "\ufeff", "\uffff",
}

// Whatever passes here must pass there, or it would abort the application's transaction; and what is refused here
// should be refused there too, but for the bounds that are ours.
func TestJSONAgreesWithPostgres(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `CREATE FUNCTION takes(text bytea) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM convert_from(text, 'UTF8')::jsonb;
			RETURN true;
		EXCEPTION WHEN OTHERS THEN
			RETURN false;
		END $$`)
	texts := randomTexts(20000)
	there := testdb.Column[bool](t, db, `SELECT takes(x) FROM unnest($1::bytea[]) WITH ORDINALITY AS u (x, n) ORDER BY n`, texts)
	taken := 0
	for i, text := range texts {
		bad := checkJSON(text, false)
		if (bad == nil) != there[i] {
			t.Errorf("%q: Postgres takes it: %v, we say %v", text, there[i], bad)
		}
		if bad == nil {
			taken++
		}
	}
	if taken < len(texts)/20 {
		t.Errorf("only %d of %d texts are good: the generator proves little", taken, len(texts))
	}
}

func randomTexts(n int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	several := func(from []string, most int) string {
		var b strings.Builder
		for range rng.IntN(most) {
			b.WriteString(pick(from))
		}
		return b.String()
	}
	digits := []string{"0", "1", "9", "00", "12"}
	exponents := []string{"", "", "e5", "E+131071", "e131072", "e131070", "e-16383", "e-16384", "e-16382", "e0", "e99999999999"}
	texts := make([][]byte, n)
	for i := range texts {
		switch i % 4 {
		case 0:
			texts[i] = []byte(several(pieces, 6))
		case 1:
			texts[i] = []byte(`{"a":["` + several(pieces[28:], 5) + `"]}`)
		case 2:
			texts[i] = []byte(pick([]string{"", "-"}) + pick([]string{"0", "1", "100", "12"}) + pick([]string{"", ".", ".0", "."}) + several(digits, 4) + pick(exponents))
		case 3:
			texts[i] = []byte(`[` + several([]string{`{}`, `,`, `[]`, `"x"`, ` `, `1`, `{"a":1,"a":2}`, `null`}, 6) + `]`)
		}
	}
	return texts
}

// Depth is bounded by us: Postgres' own bound depends on its build and its stack.
func TestDeepestPayloadIsStored(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	for _, text := range []string{
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
	} {
		if bad := checkJSON([]byte(text), false); bad != nil {
			t.Fatal(bad)
		}
		if got := testdb.One[string](t, db, "SELECT $1::text::jsonb::text", text); !json.Valid([]byte(got)) {
			t.Errorf("%.20s…: got %.20s…", text, got)
		}
	}
}
