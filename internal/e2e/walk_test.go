package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/testdb"
)

const (
	migrating = "../../docs/migrating.md"
	walkKind  = "mail.welcome"
)

// walk is somebody who follows docs/migrating.md, and the world around: a table in use, producers, old workers.
type walk struct {
	t     *testing.T
	db    *testdb.DB
	dir   string // where the page's files are, and its commands run
	env   []string
	names *strings.Replacer // the page's destinations → the test's
	shown *strings.Replacer // and back

	mail, crm outlet
	producer  *producer
	old       oldPrograms
	reaper    *oldWorkers
	relays    []*process
}

// docs/migrating.md, followed to its end while producers and old workers go on: every command works and shows what the page
// says; every job is done once, by an old worker or by a relay; the second consumer has all of them at the end.
func TestMigrationWalk(t *testing.T) {
	t.Parallel()
	page := steps(t, migrating)
	w := newWalk(t)
	w.old.programs = w.programs(page)
	w.producer.start(t)
	w.old.deploy(t, unguarded)
	for _, s := range page {
		if t.Failed() {
			return
		}
		w.follow(s)
	}
	w.checkAll()
}

func newWalk(t *testing.T) *walk {
	db := testdb.Legacy(t, 0)
	w := &walk{t: t, db: db, dir: t.TempDir(), mail: kafkaOutlet(t, ""), crm: rabbitOutlet(t, "")}
	w.names = strings.NewReplacer("kafka:mail", w.mail.to, "rabbitmq:crm/welcome", w.crm.to)
	w.shown = strings.NewReplacer(w.mail.to, "kafka:mail", w.crm.to, "rabbitmq:crm/welcome")
	if err := os.Symlink(plain, filepath.Join(w.dir, "relay")); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(db.URL, "search_path=", "options=-csearch_path%3D", 1) // as libpq wants it
	w.env = append(os.Environ(), "PATH="+w.dir+":"+os.Getenv("PATH"), "DATABASE_URL="+url, "RELAY_DATABASE_URL="+url,
		"RELAY_LOG_LEVEL=warn", "RELAY_LOG_FORMAT=text")
	for k, v := range w.mail.settings.with(w.crm.settings) {
		w.env = append(w.env, "RELAY_"+k+"="+v)
	}
	w.producer = &producer{db: db, kind: walkKind}
	w.old = oldPrograms{dir: w.dir, env: w.env}
	w.reaper = startOldWorkers(t, db, walkKind, 0) // no workers of the test's own, only their reaper
	return w
}

// follow does one step.
func (w *walk) follow(s step) {
	w.t.Helper()
	start := time.Now()
	defer func() {
		w.t.Logf("%s:%d: %s %s: %v", filepath.Base(migrating), s.line, s.lang, s.mark, time.Since(start).Round(time.Millisecond))
	}()
	switch what := s.lang + " " + s.mark; {
	case s.lang == "":
		w.do(s)
	case strings.HasPrefix(s.mark, "file="):
		w.write(s)
	case what == "sh run", what == "sql run":
		w.shows(s, w.run(s))
	case what == "sh until", what == "sql until":
		eventually(w.t, fmt.Sprintf("line %d shows what the page says", s.line), func() error {
			sleep(w.t, 200*time.Millisecond)
			if diff := differs(w.run(s), s.shows); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	case what == "sql rollback":
		w.shows(s, w.sql(s.text, true))
	case what == "text metrics":
		w.metrics(s)
	case what == "sql guard":
	default:
		w.t.Errorf("line %d: nobody knows how to do %q", s.line, what)
	}
}

func (w *walk) shows(s step, got string) {
	w.t.Helper()
	if s.shows == "" {
		return
	}
	if diff := differs(got, s.shows); diff != "" {
		w.t.Errorf("line %d: %s; all of it:\n%s", s.line, diff, got)
	}
}

func (w *walk) write(s step) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, strings.TrimPrefix(s.mark, "file=")), []byte(w.names.Replace(s.text)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run returns what a block prints.
func (w *walk) run(s step) string {
	w.t.Helper()
	if s.lang == "sql" {
		return w.sql(s.text, false)
	}
	// What one block exports the next ones have.
	cmd := exec.Command("sh", "-euc", ". ./exported; "+w.names.Replace(s.text)+"\nexport -p > ./exported")
	cmd.Dir, cmd.Env = w.dir, w.env
	if _, err := os.Stat(filepath.Join(w.dir, "exported")); err != nil {
		if err := os.WriteFile(filepath.Join(w.dir, "exported"), nil, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Errorf("line %d: %s%v\n%s%s", s.line, s.text, err, out, stderr.String())
	}
	return w.shown.Replace(string(out))
}

// sql returns what a statement gives, as psql shows it but for the rules.
func (w *walk) sql(text string, rollback bool) string {
	w.t.Helper()
	ctx := w.t.Context()
	conn, err := pgx.ConnectConfig(ctx, w.db.Config)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if rollback {
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			w.t.Fatal(err)
		}
	}
	rows, err := conn.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var out strings.Builder
	for _, f := range rows.FieldDescriptions() {
		out.WriteString(f.Name + " ")
	}
	n := 0
	for ; rows.Next(); n++ {
		values, err := rows.Values()
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintln(&out)
		fmt.Fprint(&out, values...)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	return out.String() + fmt.Sprintf("\n(%d row%s)\n", n, map[bool]string{false: "s"}[n == 1])
}

// metrics waits until one relay or another has each line.
func (w *walk) metrics(s step) {
	w.t.Helper()
	for _, want := range lines(s.text) {
		eventually(w.t, fmt.Sprintf("line %d: the metric %s", s.line, want), func() error {
			for _, p := range w.relays {
				_, text := p.get("/metrics")
				for _, got := range lines(w.shown.Replace(text)) {
					if fits(got, want) {
						return nil
					}
				}
			}
			return errors.New("no relay has it")
		})
	}
}

// The guard that the page writes out says what relay_owns says, at every share.
func TestGuardWrittenOut(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var condition string
	for _, s := range steps(t, migrating) {
		if s.mark == "guard" {
			condition = strings.TrimPrefix(strings.TrimSpace(s.text), "AND ")
		}
	}
	db.Exec(t, `INSERT INTO jobs (kind, key, payload) SELECT $1, CASE WHEN g % 2 = 0 THEN 'ключ ' || g END, '1' FROM generate_series(1, 2000) g`, walkKind)
	for _, share := range []int{-1, 0, 1, 25, 99, 100} { // -1: no row
		if share >= 0 {
			db.Exec(t, `INSERT INTO relay_kinds (kind, share) VALUES ($1, $2) ON CONFLICT (kind) DO UPDATE SET share = excluded.share`, walkKind, share)
		}
		wrong := value[int](t, db, `SELECT count(*) FROM jobs WHERE (`+condition+`) IS DISTINCT FROM NOT relay_owns(kind, key, id)`)
		others := value[int](t, db, `SELECT count(*) FROM jobs WHERE `+condition)
		if wrong > 0 || (others == 0) != (share == 100) {
			t.Errorf("share %d: %d of 2,000 jobs are judged otherwise than by relay_owns, %d left to others", share, wrong, others)
		}
	}
}
