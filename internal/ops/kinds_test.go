package ops

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/claim"
)

// text writes a percentage, "-" for none.
func text(p *float64) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// The relays' part is shown where both sides can be counted, and nowhere else.
func TestKindShareShowsNoFalsePart(t *testing.T) {
	t.Parallel()
	at := time.Now()
	side := func(done, dead, keys int64, oldest time.Duration) claim.SideStats {
		return claim.SideStats{Done: done, Dead: dead, Keys: keys, Oldest: at.Add(-oldest)}
	}
	none := claim.SideStats{}
	const no = -1
	for name, test := range map[string]struct {
		share         int
		relay, others claim.SideStats
		known         KindsKnown
		part, keys    string
		note          string
	}{
		"a quarter":                  {25, side(249, 1, 24, time.Minute), side(747, 3, 76, time.Minute), KindsKnown{}, "25", "24", ""},
		"nothing done yet":           {25, none, none, KindsKnown{}, "-", "-", ""},
		"nothing of the relays'":     {25, side(0, 2, 2, 0), side(90, 0, 9, time.Minute), KindsKnown{}, "-", "-", "RELAY_RETENTION=0"},
		"nothing of others'":         {25, side(90, 0, 9, time.Minute), side(0, 1, 1, 0), KindsKnown{}, "-", "-", "no done job of others"},
		"all others'":                {0, none, side(90, 0, 9, time.Minute), KindsKnown{}, "0", "0", ""},
		"no row":                     {no, none, side(90, 0, 9, time.Minute), KindsKnown{}, "0", "0", ""},
		"all the relays'":            {100, side(90, 0, 9, time.Minute), none, KindsKnown{}, "100", "100", ""},
		"deleted as they settle":     {25, side(0, 2, 2, 0), side(90, 0, 9, time.Minute), KindsKnown{DeletesDone: true}, "-", "-", ""},
		"the relays' removed sooner": {50, side(40, 0, 9, time.Minute), side(400, 0, 9, 10*time.Minute), KindsKnown{}, "9.1", "50", "reach back 1m0s, those of others 10m0s"},
		"others' removed sooner":     {50, side(400, 0, 9, 9*time.Minute), side(40, 0, 9, time.Minute), KindsKnown{}, "90.9", "50", "done jobs of others reach back 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := claim.KindStats{Kind: "k", At: at, Since: at.Add(-10 * time.Minute), Relay: test.relay, Others: test.others}
			if test.share != no {
				f.Share = &claim.Share{Kind: "k", Percent: test.share}
			}
			k := NewKindShare(f, test.known)
			if text(k.Percent) != test.part || text(k.PercentOfKeys) != test.keys {
				t.Errorf("part %s of jobs, %s of keys; want %s, %s", text(k.Percent), text(k.PercentOfKeys), test.part, test.keys)
			}
			if notes := strings.Join(k.Notes, "; "); !strings.Contains(notes, test.note) || (notes == "") != (test.note == "") {
				t.Errorf("notes %q, want %q", notes, test.note)
			}
			if (k.Relay.Done == nil) != test.known.DeletesDone || k.Others.Done == nil {
				t.Errorf("done: %v, %v", k.Relay.Done, k.Others.Done)
			}
			if got, want := *k.Others.DonePerSecond, float64(test.others.Done)/600; got != want {
				t.Errorf("others did %v a second, want %v", got, want)
			}
		})
	}
}

// What the routes say is held against the rows.
func TestKindShareBesideRoutes(t *testing.T) {
	t.Parallel()
	known := KindsKnown{
		Serves:     func(kind string) bool { return kind != "foreign" },
		RouteShare: func(kind string) (int, bool) { return 5, kind == "says" },
	}
	for _, test := range []struct {
		kind  string
		share int
		note  string
	}{
		{"says", 5, ""}, {"says", 50, "says share: 5; the row's 50 holds"}, {"says not", 50, ""}, {"says", -1, "no row yet"},
		{"foreign", 25, "no route"}, {"foreign", 0, ""}, {"foreign", -1, ""},
	} {
		f := claim.KindStats{Kind: test.kind}
		if test.share >= 0 {
			f.Share = &claim.Share{Kind: test.kind, Percent: test.share}
		}
		k := NewKindShare(f, known)
		if notes := strings.Join(k.Notes, "; "); !strings.Contains(notes, test.note) || (notes == "") != (test.note == "") {
			t.Errorf("%s with a share of %d: notes %q, want %q", test.kind, test.share, notes, test.note)
		}
	}
}
