-- Columns, checks and triggers, in one transaction that holds the table for a few milliseconds: nothing here reads or
-- rewrites rows. Constant defaults are stored in the catalog; created_at gets its default only after it exists, so rows
-- of before keep NULL; checks are NOT VALID and validated by a later step.

-- +goose Up

-- The first lock keeps vacuum out without stopping anybody's work (waiting for it makes autovacuum give way after a
-- second); only then the lock that stops everybody, and never for more than 100 ms of waiting.
SET LOCAL lock_timeout = '10s';
LOCK TABLE {{.Table}} IN SHARE UPDATE EXCLUSIVE MODE;
SET LOCAL lock_timeout = '100ms';

ALTER TABLE {{.Table}}
{{- range .Columns}}
    ADD COLUMN {{.Name}} {{.Definition}},
{{- end}}
{{- range .Checks}}
    ADD CONSTRAINT {{.Name}} CHECK ({{.Expr}}) NOT VALID,
{{- end}}
    ALTER COLUMN payload DROP NOT NULL;

ALTER TABLE {{.Table}} ALTER COLUMN created_at SET DEFAULT now();

-- Keeps hand-written SQL and old workers right. The WHEN clauses below decide when it runs; none of them is true for
-- what relays write.
-- +goose StatementBegin
CREATE FUNCTION {{.In "relay_stamp"}}() RETURNS trigger
LANGUAGE plpgsql
AS $relay$
BEGIN
    IF NEW.status IN ('done', 'dead') THEN
        NEW.finished_at := coalesce(NEW.finished_at, pg_catalog.statement_timestamp());
    ELSE
        NEW.finished_at := NULL;
    END IF;
    IF NEW.status = 'dead' AND NEW.last_error IS NULL THEN
        NEW.last_error := 'no reason recorded';
    END IF;
    -- Claimed by somebody who knows no tokens, or put back after it was done. A token must always mean that a relay claimed
    -- the row last, and may still say what became of it.
    IF TG_OP = 'UPDATE' AND NEW.lease_token = OLD.lease_token
       AND (OLD.status = 'done' AND NEW.status <> 'done'
            OR NEW.status = 'running' AND (OLD.status <> 'running' OR NEW.attempts <> OLD.attempts)) THEN
        NEW.lease_token := NULL;
    END IF;
    RETURN NEW;
END
$relay$;
-- +goose StatementEnd

CREATE TRIGGER relay_stamp_insert BEFORE INSERT ON {{.Table}}
FOR EACH ROW
WHEN ((NEW.status IN ('done', 'dead')) <> (NEW.finished_at IS NOT NULL)
   OR (NEW.status = 'dead' AND NEW.last_error IS NULL))
EXECUTE FUNCTION {{.In "relay_stamp"}}();

-- A row that is running already becomes running again only when its attempts move too: writing a row back as it was read
-- is no claim.
CREATE TRIGGER relay_stamp_update BEFORE UPDATE OF status ON {{.Table}}
FOR EACH ROW
WHEN ((NEW.status IN ('done', 'dead')) <> (NEW.finished_at IS NOT NULL)
   OR (NEW.status = 'dead' AND NEW.last_error IS NULL)
   OR (NEW.lease_token = OLD.lease_token
       AND (OLD.status = 'done' AND NEW.status <> 'done'
            OR NEW.status = 'running' AND (OLD.status <> 'running' OR NEW.attempts <> OLD.attempts))))
EXECUTE FUNCTION {{.In "relay_stamp"}}();

-- A dead job closes its key, and reopens it when it is dead no more. Runs as its owner: whoever may change a job needs
-- no right on the helper table.
-- +goose StatementBegin
CREATE FUNCTION {{.In "relay_close_key"}}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $relay$
BEGIN
    IF NEW.status = 'dead' THEN
        INSERT INTO {{.In "relay_closed_keys"}} (kind, key, job) VALUES (NEW.kind, NEW.key, NEW.id) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM {{.In "relay_closed_keys"}} WHERE kind = OLD.kind AND key = OLD.key AND job = OLD.id;
    END IF;
    RETURN NULL;
END
$relay$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION {{.In "relay_close_key"}}() FROM PUBLIC;

-- A copy made by replay never closes a key.
CREATE TRIGGER relay_close_key_insert AFTER INSERT ON {{.Table}}
FOR EACH ROW
WHEN (NEW.status = 'dead' AND NEW.key IS NOT NULL AND NEW.replay_of IS NULL)
EXECUTE FUNCTION {{.In "relay_close_key"}}();

CREATE TRIGGER relay_close_key_update AFTER UPDATE OF status ON {{.Table}}
FOR EACH ROW
WHEN ((NEW.status = 'dead') <> (OLD.status = 'dead') AND NEW.key IS NOT NULL AND NEW.replay_of IS NULL)
EXECUTE FUNCTION {{.In "relay_close_key"}}();

-- +goose Down
SET LOCAL lock_timeout = '10s';
LOCK TABLE {{.Table}} IN SHARE UPDATE EXCLUSIVE MODE;
SET LOCAL lock_timeout = '100ms';
LOCK TABLE {{.Table}} IN ACCESS EXCLUSIVE MODE;
{{- if and (not .DropData) .LossTest}}
-- +goose StatementBegin
DO $relay$
BEGIN
    IF EXISTS (SELECT FROM {{.Table}} WHERE {{.LossTest}}) THEN
        RAISE EXCEPTION 'jobs use columns that would be dropped (key, headers, body, priority, delivered or replay_of)'
            USING ERRCODE = 'RL001';
    END IF;
END
$relay$;
-- +goose StatementEnd
{{- end}}
DROP TRIGGER relay_close_key_update ON {{.Table}};
DROP TRIGGER relay_close_key_insert ON {{.Table}};
DROP TRIGGER relay_stamp_update ON {{.Table}};
DROP TRIGGER relay_stamp_insert ON {{.Table}};
DROP FUNCTION {{.In "relay_close_key"}}();
DROP FUNCTION {{.In "relay_stamp"}}();
ALTER TABLE {{.Table}}
{{- range .Checks}}
    DROP CONSTRAINT {{.Name}},
{{- end}}
{{- range .Added}}
    DROP COLUMN {{.}},
{{- end}}
    ALTER COLUMN payload {{if .PayloadNullable}}DROP{{else}}SET{{end}} NOT NULL;
