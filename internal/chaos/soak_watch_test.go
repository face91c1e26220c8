package chaos

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/testdb"
)

const (
	longest   = time.Second            // a statement, a transaction
	moment    = 250 * time.Millisecond // a transaction that waits for its client: the rest of a batch that was sent at once
	tolerance = 5                      // times that, before a machine that is busy otherwise fails the test
	noted     = 100 * time.Millisecond // what is remembered, so that the test can say how far from its bounds it was
	lookEvery = 50 * time.Millisecond
	afterward = 2 * time.Second // after a fault of the database: it starts with an empty cache, and everybody comes at once
)

// watch looks at the relays' sessions all the time, and remembers what took long.
type watch struct {
	looks int
	slow  map[slowKey]slow
}

type period struct{ from, to time.Time }

// slow is something of a relay that took a while.
type slow struct {
	period
	what, who, text string
	bound           time.Duration
}

// slowKey tells two of them apart: since when which session does so.
type slowKey struct {
	what  string
	pid   int
	since int64
}

func newWatch() *watch { return &watch{slow: map[slowKey]slow{}} }

// run looks until ctx ends. The database may be away meanwhile.
func (w *watch) run(ctx context.Context, pool *pgxpool.Pool) {
	repeat(ctx, lookEvery, func(ctx context.Context) (bool, error) {
		err := w.look(ctx, pool)
		if err == nil {
			w.looks++
		}
		return false, err
	})
}

const activity = `SELECT pid, application_name, state, concat_ws(' ', wait_event_type, wait_event, left(query, 120)), clock_timestamp(), query_start, xact_start, state_change
	FROM pg_stat_activity WHERE application_name LIKE 'relay-%' AND state <> 'idle'`

func (w *watch) look(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, activity)
	if err != nil {
		return err
	}
	var pid int
	var who, state, text string
	var now time.Time
	var query, transaction, changed *time.Time
	_, err = pgx.ForEachRow(rows, []any{&pid, &who, &state, &text, &now, &query, &transaction, &changed}, func() error {
		if state == "active" {
			w.saw("statement", pid, slow{what: "a statement", who: who, text: text, bound: longest}, query, now)
		} else {
			w.saw("idle", pid, slow{what: "an open transaction that does nothing", who: who, text: text, bound: moment}, changed, now)
		}
		w.saw("transaction", pid, slow{what: "a transaction", who: who, text: text, bound: longest}, transaction, now)
		return nil
	})
	return err
}

func (w *watch) saw(kind string, pid int, l slow, since *time.Time, now time.Time) {
	if since == nil {
		return
	}
	l.period = period{*since, now}
	if l.length() > noted {
		w.slow[slowKey{kind, pid, since.UnixMicro()}] = l
	}
}

func (p period) length() time.Duration { return p.to.Sub(p.from) }

// beside is how much of p lies in none of the others.
func (p period) beside(others []period) time.Duration {
	slices.SortFunc(others, func(a, b period) int { return a.from.Compare(b.from) })
	left, at := time.Duration(0), p.from
	for _, o := range others {
		if o.from.After(at) {
			left += max(0, earliest(o.from, p.to).Sub(at))
		}
		if o.to.After(at) {
			at = o.to
		}
	}
	return left + max(0, p.to.Sub(at))
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// watched has the server write down each statement that takes long, so that none is missed between two looks.
var watched = []string{
	"logging_collector=on", "log_destination=jsonlog", "log_filename=soak.log", "log_rotation_age=0", "log_rotation_size=0", "log_timezone=UTC",
	"autovacuum_naptime=5s", // a server that crashes every minute would hardly come to its usual minute
	"log_min_duration_statement=" + strconv.Itoa(int(noted.Milliseconds())), "log_autovacuum_min_duration=0",
}

var duration = regexp.MustCompile(`^duration: ([0-9.]+) ms`)

// entry is a line of the server's log.
type entry struct {
	Timestamp, Message string
	PID                int
	Application        string `json:"application_name"`
}

// read returns the statements of relays that the server itself found long, and how often it vacuumed the table of jobs.
func (w *watch) read(wd *world) (vacuums int) {
	wd.t.Helper()
	text := testdb.One[string](wd.t, wd.db, `SELECT pg_read_file('log/soak.json')`)
	for line := range strings.Lines(text) {
		var e entry
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // cut off by a crash
		}
		if strings.HasPrefix(e.Message, "automatic vacuum of table") && strings.Contains(e.Message, wd.db.Table) {
			vacuums++
		}
		took := duration.FindStringSubmatch(e.Message)
		if took == nil || !strings.HasPrefix(e.Application, "relay-") {
			continue
		}
		ms, _ := strconv.ParseFloat(took[1], 64)
		at, err := time.Parse("2006-01-02 15:04:05.000 MST", e.Timestamp)
		if err != nil {
			wd.t.Fatal(err)
		}
		from := at.Add(-time.Duration(ms * float64(time.Millisecond)))
		w.slow[slowKey{"log", e.PID, from.UnixMicro()}] = slow{period{from, at}, "a statement", e.Application, e.Message, longest}
	}
	return vacuums
}

// judge fails the test for whatever took far longer beside faults than it may, and tells what took longer.
func (w *watch) judge(wd *world) {
	wd.t.Helper()
	vacuums := w.read(wd)
	wd.t.Logf("%d looks; the table was vacuumed %d times", w.looks, vacuums)
	most, lasted := map[string]slow{}, map[string]time.Duration{}
	for _, l := range w.slow {
		took := l.beside(excuses(wd, l.who))
		if took > lasted[l.what] {
			lasted[l.what], most[l.what] = took, l
		}
		say := wd.t.Logf
		if took > tolerance*l.bound {
			say = wd.t.Errorf
		}
		if took > l.bound {
			say("%s: %s took %v, of which %v beside faults, and may take %v. Since %s: %s", l.who, l.what,
				l.length().Round(time.Millisecond), took.Round(time.Millisecond), l.bound, l.from.UTC().Format(time.TimeOnly), l.text)
		}
	}
	for what, l := range most {
		wd.t.Logf("beside faults %s took at most %v: %s: %.120s", what, lasted[what].Round(time.Millisecond), l.who, l.text)
	}
	if w.looks < 100 {
		wd.t.Errorf("%d looks: the test tests nothing", w.looks)
	}
}

// excuses are when the database or its line to a relay was disturbed, or that process stopped.
func excuses(wd *world, who string) (all []period) {
	for _, f := range wd.faults {
		if f.On == history.OnDatabase && (f.Relay == "" || f.Relay == who) || f.On == history.OnRelay && f.Relay == who {
			all = append(all, period{f.From, f.To.Add(afterward)})
		}
	}
	return all
}
