package claim

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrelay/relay/internal/testdb"
)

// Every statement of a replay reads in proportion to its bound, beside whatever else is in the table, with whatever
// statistics.
func TestPlansOfReplay(t *testing.T) {
	t.Parallel()
	onEach(t, testPlansOfReplay)
}

func testPlansOfReplay(t *testing.T, newDB func(testing.TB) *testdb.DB) {
	db := newDB(t)
	db.Exec(t, noAutovacuum)
	db.Exec(t, `INSERT INTO relay_kinds VALUES ('k', 100)`)
	// Finished in no order, among as many of somebody else's.
	db.Exec(t, `INSERT INTO jobs (kind, key, payload, status, finished_at, delivered) SELECT CASE g % 2 WHEN 0 THEN 'k' ELSE 'foreign' END, 'key' || g % 100, '{"n": 1}', 'done',
		now() - interval '1 day' + (g * 7919 % 200000) * interval '100 milliseconds', '{a}' FROM generate_series(1, 200000) g`)
	db.Exec(t, `INSERT INTO jobs (kind, payload, replay_of, status, lease_token) SELECT 'k', '{"n": 1}', g, 'running', 7 FROM generate_series(2, 40000, 2) g`)
	db.Exec(t, `INSERT INTO relay_replays (name, filters) VALUES ('n', '{}')`)
	s := newStore(t, db, Options{})
	started := testdb.One[time.Time](t, db, `SELECT started_at FROM relay_replays`)
	chosen := testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE kind = 'k' AND status = 'done' ORDER BY id LIMIT $1`, batchMost)
	copies := testdb.Column[int64](t, db, `SELECT id FROM jobs WHERE replay_of IS NOT NULL ORDER BY id LIMIT $1`, windowMost)
	where := make([]string, batchMost)
	for i := range where {
		where[i] = "{b}"
	}
	since, until := pgtype.Timestamptz{Time: time.Now().Add(-20 * time.Hour), Valid: true}, pgtype.Timestamptz{Time: time.Now(), Valid: true}
	for _, statistics := range []string{"", "VACUUM jobs", "ANALYZE jobs", noStatistics} {
		if statistics != "" {
			db.Exec(t, "VACUUM jobs")
			db.Exec(t, statistics)
		}
		for _, c := range []struct {
			name, settings, sql string
			args                []any
			most                int
		}{
			{"a slice in time", s.sql.claimSettings, s.sql.replay.finished, []any{"k", since, until, int32(walkRows), int64(0), text("key4"), "b"}, walkRows * 2},
			{"a slice by id", s.sql.claimSettings, s.sql.replay.slice, []any{chosen[0], int32(walkRows), "k", since, until, text("key4"), "b"}, walkRows * 2},
			{"by id", s.sql.claimSettings, s.sql.replay.byID, []any{chosen, "", since, until, (*string)(nil), ""}, batchMost * perJob / 2},
			// An insert writes the primary key and two other indexes.
			{"copy", s.sql.settleSettings, s.sql.replay.copy, []any{"n", started, int64(0), chosen[batchMost-1], chosen, []string{"k"}, []string{"{a}"}, "b"}, batchMost * 2 * perJob},
			{"what is left", s.sql.claimSettings, s.sql.replay.left, []any{copies}, windowMost * perJob / 2},
			{"what was left behind", s.sql.claimSettings, s.sql.replay.waiting, []any{"k", int32(recoverRows)}, recoverRows * 3},
			{"tell the originals", s.sql.settleSettings, s.sql.replay.delivered, []any{int64(7), copies[:batchMost], where, true}, batchMost * 3 * perJob},
		} {
			each(t, c.name+", "+statistics, c.most, func(further ...string) explained { return explain(t, db, c.settings, c.sql, c.args, further...) })
		}
	}
}
