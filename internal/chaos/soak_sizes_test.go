package chaos

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// sizes follows the relay's tables.
type sizes struct {
	began time.Time
	all   []size
}

// size is a table at one moment.
type size struct {
	table  string
	at     time.Duration
	bytes, // with its indexes
	live, dead, // versions in its pages
	known int // dead ones that the statistics know of: those whose room on the page is free again too
}

const (
	sizeEvery = 5 * time.Second
	vacuumed  = 10_000 // dead rows, from which on autovacuum comes
)

func (z *sizes) run(ctx context.Context, w *world) {
	z.began = time.Now()
	pool := w.pool("sizes", 1)
	repeat(ctx, sizeEvery, func(ctx context.Context) (bool, error) {
		rows, err := pool.Query(ctx, `SELECT c.relname, pg_total_relation_size(c.oid), t.tuple_count, t.dead_tuple_count, pg_stat_get_dead_tuples(c.oid)
			FROM pg_class AS c, pgstattuple(c.oid::regclass) AS t WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'`, w.db.Schema)
		if err != nil {
			return false, err
		}
		s := size{at: time.Since(z.began)}
		_, err = pgx.ForEachRow(rows, []any{&s.table, &s.bytes, &s.live, &s.dead, &s.known}, func() error {
			z.all = append(z.all, s)
			return nil
		})
		return false, err
	})
}

// peak is the most of each within a part of the run.
func (z *sizes) peak(table string, until time.Duration) (p size) {
	for _, s := range z.all {
		if s.table == table && s.at <= until {
			p = size{table, until, max(p.bytes, s.bytes), max(p.live, s.live), max(p.dead, s.dead), max(p.known, s.known)}
		}
	}
	return p
}

// judge compares the first third with the whole run: what grows with the jobs that went through is three times as large in the
// end. Before autovacuum has come by a few times there is nothing to compare.
func (z *sizes) judge(s *soak) {
	s.t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "peaks\tKiB, first third\tKiB\tlive\tdead\tdead in the statistics\t\n")
	for _, name := range []string{"jobs", "relay_closed_keys", "relay_kinds", "relay_replays", "relay_migrations"} {
		third, whole := z.peak(name, s.span/3), z.peak(name, time.Hour)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", name, third.bytes>>10, whole.bytes>>10, whole.live, whole.dead, whole.known)
		if third.bytes == 0 {
			s.t.Errorf("%s was never looked at", name)
		}
		if s.span >= long && (whole.bytes > 2*third.bytes+1<<20 || whole.dead > 2*third.dead+vacuumed) {
			s.t.Errorf("%s grows: %d KiB with %d dead rows after a third of the run, %d KiB with %d in all of it", name,
				third.bytes>>10, third.dead, whole.bytes>>10, whole.dead)
		}
	}
	table.Flush()
	s.t.Logf("%d jobs went through the tables\n%s", s.jobs(), text.String())
}
