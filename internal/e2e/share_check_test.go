package e2e

import (
	"math"
	"strings"

	"github.com/jobrelay/relay/internal/testdb"
)

// checkOnce: every job was carried out once, by old workers or by relays, but for what a killed relay held.
func (m *move) checkOnce(byRelays map[int64]int) {
	m.t.Helper()
	ids := testdb.Column[int64](m.t, m.db, `SELECT id FROM jobs`)
	if len(ids) != int(m.load.sent.Load()) {
		m.t.Errorf("%d jobs in the table, %d were enqueued", len(ids), m.load.sent.Load())
	}
	wrong, old, relays, again := 0, 0, 0, 0
	for _, id := range ids {
		n := m.old.did[id] + byRelays[id]
		old, relays = old+m.old.did[id], relays+byRelays[id]
		switch {
		case n == 2 && m.held[id]:
			again++
		case n != 1:
			if wrong++; wrong <= 5 {
				m.t.Errorf("job %d: done %d times by old workers and %d times by relays", id, m.old.did[id], byRelays[id])
			}
		}
	}
	m.t.Logf("%d jobs: %d by old workers, %d by relays, %d twice of %d that a killed relay held", len(ids), old, relays, again, len(m.held))
	if wrong > 0 {
		m.t.Errorf("%d jobs weren't done exactly once", wrong)
	}
}

// checkOwners: within a phase each claim is that of the owner, so that a key never changes sides.
func (m *move) checkOwners(all []entry) {
	m.t.Helper()
	type at struct {
		phase int
		key   string
	}
	sides := map[at]bool{}
	wrong, checked := 0, 0
	for _, c := range all {
		for i, p := range m.phases {
			if c.At.Before(p.from) || c.At.After(p.to) {
				continue
			}
			checked++
			side, known := sides[at{i, c.Key}]
			sides[at{i, c.Key}] = c.Relay
			if c.Relay != owned(c.Key, p.share) || known && side != c.Relay {
				if wrong++; wrong <= 5 {
					m.t.Errorf("job %d with key %s, claimed by a relay: %t, %v into phase %d with a share of %d", c.Job, c.Key, c.Relay, c.At.Sub(p.from), i, p.share)
				}
			}
		}
	}
	m.t.Logf("%d claims, %d of them between two changes of the share", len(all), checked)
	if wrong > 0 || checked < len(all)/2 { // on a busy machine a change of the share takes a while, and jobs go on meanwhile
		m.t.Errorf("%d of %d claims went to the wrong side, of %d in all", wrong, checked, len(all))
	}
}

// checkQuarter: of the keys that came once, a quarter went to relays.
func (m *move) checkQuarter(all []entry) {
	m.t.Helper()
	sides := map[string]bool{}
	for _, c := range all {
		if strings.HasPrefix(c.Key, "fresh-") && !c.At.Before(m.phases[1].from) && !c.At.After(m.phases[1].to) {
			sides[c.Key] = c.Relay
		}
	}
	relays := 0
	for _, relay := range sides {
		if relay {
			relays++
		}
	}
	got := 100 * float64(relays) / float64(len(sides))
	m.t.Logf("a share of 25 gave relays %.2f %% of %d keys", got, len(sides))
	if len(sides) < 20_000 || math.Abs(got-25) > 2 {
		m.t.Errorf("a share of 25 gave relays %.2f %% of %d keys, want 23 to 27 of 20,000", got, len(sides))
	}
}
