package migrations_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// Tables that can't be adopted are refused by name with the rule, by up and by sql, and nothing is changed.
func TestRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		for _, c := range []struct {
			name, sql string
			want      []string
			rehearsed bool // found by trying it, which sql doesn't
		}{
			{"status enum", `ALTER TABLE jobs DROP COLUMN status; CREATE TYPE job_status AS ENUM ('ready', 'running', 'done', 'dead');
ALTER TABLE jobs ADD status job_status NOT NULL DEFAULT 'ready'`, []string{"column status", "job_status", "must be text"}, false},
			{"missing column", `ALTER TABLE jobs DROP COLUMN leased_until`, []string{"column leased_until is missing"}, false},
			{"several at once", `ALTER TABLE jobs DROP COLUMN leased_until, DROP COLUMN last_error`, []string{"leased_until", "last_error"}, false},
			{"int id", `ALTER TABLE jobs ALTER id TYPE integer`, []string{"column id is integer, must be bigint"}, false},
			{"uuid id", `ALTER TABLE jobs DROP COLUMN id; ALTER TABLE jobs ADD id uuid PRIMARY KEY DEFAULT gen_random_uuid()`, []string{"column id is uuid"}, false},
			{"id without a default", `ALTER TABLE jobs ALTER id DROP IDENTITY`, []string{"column id must be an identity"}, false},
			{"id without a key", `ALTER TABLE jobs DROP CONSTRAINT jobs_pkey`, []string{"column id has no primary key"}, false},
			{"json payload", `ALTER TABLE jobs ALTER payload TYPE json`, []string{"column payload is json, must be jsonb"}, false},
			{"run_at without zone", `ALTER TABLE jobs ALTER run_at TYPE timestamp`, []string{"column run_at is timestamp without time zone"}, false},
			{"varchar kind", `ALTER TABLE jobs ALTER kind TYPE varchar(100)`, []string{"column kind is character varying, must be text"}, false},
			{"smallint attempts", `ALTER TABLE jobs ALTER attempts TYPE smallint`, []string{"column attempts is smallint"}, false},
			{"kind may be NULL", `ALTER TABLE jobs ALTER kind DROP NOT NULL`, []string{"column kind allows NULL"}, false},
			{"a key of another type", `ALTER TABLE jobs ADD key integer`, []string{"column key is integer, must be text"}, false},
			{"an order of letters that isn't the bytes'", `CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
ALTER TABLE jobs ADD key text COLLATE nocase, ALTER last_error TYPE text COLLATE nocase`, []string{"column key has the collation", "nocase", "column last_error", "must be a deterministic one"}, false},
			{"a priority of another type", `ALTER TABLE jobs ADD priority integer NOT NULL DEFAULT 0`, []string{"column priority is integer, must be smallint"}, false},
			{"a token of somebody else", `ALTER TABLE jobs ADD lease_token bigint`, []string{"column lease_token exists already"}, false},
			{"a column that wants a value", `ALTER TABLE jobs ADD tenant text NOT NULL DEFAULT 'x'; ALTER TABLE jobs ALTER tenant DROP DEFAULT`, []string{"column tenant", "default"}, false},
			{"a view", `ALTER TABLE jobs RENAME TO real_jobs; CREATE VIEW jobs AS SELECT * FROM real_jobs`, []string{"it is no table"}, false},
			{"partitioned", `DROP TABLE jobs; CREATE TABLE jobs (LIKE ` + `pg_class) PARTITION BY RANGE (oid)`, []string{"partitioned"}, false},
			{"unlogged", `ALTER TABLE jobs SET UNLOGGED`, []string{"unlogged"}, false},
			{"no dead allowed", `DELETE FROM jobs WHERE status = 'dead'; ALTER TABLE jobs DROP CONSTRAINT jobs_status_check; ALTER TABLE jobs ADD CONSTRAINT three CHECK (status IN ('ready', 'running', 'done'))`, []string{"settling as dead", "three"}, true},
			{"a constraint over two columns", `ALTER TABLE jobs ADD CONSTRAINT lease CHECK (status <> 'running' OR attempts > 1) NOT VALID`, []string{"a claim", "lease"}, true},
			{"a trigger that objects", `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''hands off''; END';
CREATE TRIGGER no BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION no()`, []string{"an insert", "hands off"}, true},
			{"no default for status", `ALTER TABLE jobs ALTER status DROP DEFAULT`, []string{"an insert", "status"}, true},
			{"rows with another status", `ALTER TABLE jobs DROP CONSTRAINT jobs_status_check; UPDATE jobs SET status = 'failed' WHERE status = 'dead'`, []string{"10 rows", "status must be ready, running, done or dead", "id 3"}, false},
			{"rows with a long kind", `UPDATE jobs SET kind = repeat('k', 256) WHERE id = 7`, []string{"1 rows", "kind must have 1 to 255 bytes", "id 7"}, false},
			{"rows without a payload", `ALTER TABLE jobs ALTER payload DROP NOT NULL; UPDATE jobs SET payload = NULL WHERE id = 9`, []string{"1 rows", "payload and body"}, false},
			{"rows with odd headers", `ALTER TABLE jobs ADD headers jsonb; UPDATE jobs SET headers = '[]'`, []string{"40 rows", "headers must be a JSON object"}, false},
			{"ready rows that are finished", `ALTER TABLE jobs ADD finished_at timestamptz; UPDATE jobs SET finished_at = now()`, []string{"20 rows", "finished_at"}, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				db := testdb.LegacyOn(t, server, 40)
				db.Exec(t, c.sql)
				before := shape(t, db)
				err := migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Table})
				if !errors.Is(err, migrations.ErrNotAdoptable) {
					t.Errorf("got %v, want ErrNotAdoptable", err)
				}
				wantErr(t, err, append(c.want, db.Table)...)
				sameShape(t, shape(t, db), before)
				var out bytes.Buffer
				err = migrations.SQL(t.Context(), db.Config, migrations.Options{Table: db.Table}, &out)
				if c.rehearsed {
					if err != nil {
						t.Errorf("sql: got %v, want no error: it must not try an insert", err)
					}
				} else if !errors.Is(err, migrations.ErrNotAdoptable) || out.Len() > 0 {
					t.Errorf("sql: got %v and %d bytes, want ErrNotAdoptable and nothing", err, out.Len())
				}
			})
		}
	})
}

// What the design allows beside the usual is adopted.
func TestAdoptable(t *testing.T) {
	onEach(t, func(t *testing.T, server string) {
		for name, sql := range map[string]string{
			"bigserial":       `ALTER TABLE jobs ALTER id DROP IDENTITY; CREATE SEQUENCE jobs_id_seq1 START 1000 OWNED BY jobs.id; ALTER TABLE jobs ALTER id SET DEFAULT nextval('jobs_id_seq1')`,
			"identity":        `ALTER TABLE jobs ALTER id SET GENERATED BY DEFAULT`,
			"bigint attempts": `ALTER TABLE jobs ALTER attempts TYPE bigint`,
			"own columns":     `ALTER TABLE jobs ADD tenant text, ADD created_at timestamptz NOT NULL DEFAULT now(), ADD key text, ADD priority smallint NOT NULL DEFAULT 0`,
			"generated":       `ALTER TABLE jobs ADD size int NOT NULL GENERATED ALWAYS AS (length(kind)) STORED`,
			"own finished_at": `ALTER TABLE jobs ADD finished_at timestamptz; UPDATE jobs SET finished_at = '2020-01-01Z' WHERE status = 'done'`,
			"no indexes":      `DROP INDEX jobs_ready_idx, jobs_running_idx`,
			"payload NULL":    `ALTER TABLE jobs ALTER payload DROP NOT NULL`,
			"no rows":         `TRUNCATE jobs`,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := testdb.LegacyOn(t, server, 40)
				db.Exec(t, sql)
				before := shape(t, db)
				db.Migrate(t, options)
				if err := migrations.Check(t.Context(), db.Pool, "jobs"); err != nil {
					t.Error(err)
				}
				db.Exec(t, `INSERT INTO jobs (kind, key, body) VALUES ('k', 'a', 'x')`)
				db.Exec(t, `DELETE FROM jobs WHERE kind = 'k'`)
				if name == "own finished_at" {
					if got := testdb.One[int](t, db, `SELECT count(*) FROM jobs WHERE finished_at = '2020-01-01Z'`); got != 10 {
						t.Errorf("times of others that stayed: got %d, want 10", got)
					}
				}
				downTo(t, db, 0)
				sameShape(t, shape(t, db), before)
			})
		}
	})
}

// A table that was dropped by hand isn't taken for one that must be made.
func TestTableGone(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, `DROP TABLE jobs`)
	err := migrations.Up(t.Context(), db.Config, migrations.Options{Table: db.Table})
	wantErr(t, err, "is gone", "restore")
	if err := migrations.Check(t.Context(), db.Pool, db.Table); !errors.Is(err, migrations.ErrNotMigrated) {
		t.Errorf("check: got %v, want ErrNotMigrated", err)
	}
}
