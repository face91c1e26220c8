-- The tables beside the jobs, and the functions that applications and old workers call. Every name is qualified: nothing
-- here depends on the caller's search_path.

-- +goose Up

-- Which part of a kind relays own, 0 to 100 per cent; the one truth for relays and old workers.
CREATE TABLE {{.In "relay_kinds"}} (
    kind       text{{.Collation "kind"}} PRIMARY KEY,
    share      smallint    NOT NULL DEFAULT 100 CHECK (share BETWEEN 0 AND 100),
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Keys held back by a dead job. A row counts only while its job is still dead. No foreign key: it would lock jobs.
CREATE TABLE {{.In "relay_closed_keys"}} (
    kind      text{{.Collation "kind"}} NOT NULL,
    key       text{{.Collation "key"}} NOT NULL,
    job       bigint      NOT NULL,
    closed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, key, job)
);

-- How far a replay has come, so that the same command goes on after an interruption. position is the last id copied.
CREATE TABLE {{.In "relay_replays"}} (
    name        text        PRIMARY KEY,
    filters     jsonb       NOT NULL,
    position    bigint      NOT NULL DEFAULT 0,
    copied      bigint      NOT NULL DEFAULT 0,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);

-- Wakes idle relays at commit. A plain pg_notify in every enqueuing transaction would serialize their commits behind one
-- lock; here one open transaction notifies at a time and the others rely on the relays' polling.
-- +goose StatementBegin
CREATE FUNCTION {{.In "relay_notify"}}() RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
AS $relay$
    SELECT pg_catalog.pg_notify({{.Channel}}, '')
    WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended({{.Lock "notify"}}, 0))
$relay$;
-- +goose StatementEnd

-- Whether relays own a job: the same answer for every job of a key, and for every retry of one without a key. plpgsql,
-- not sql: a function with a sub-select is never inlined, and plpgsql keeps its plan for the session.
-- +goose StatementBegin
CREATE FUNCTION {{.In "relay_owns"}}(kind text, key text, id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $relay$
BEGIN
    RETURN coalesce((
        SELECT ('x' || pg_catalog.substr(pg_catalog.md5(coalesce($2, $3::text)), 1, 8))::bit(32)::bigint % 100 < k.share
        FROM {{.In "relay_kinds"}} k
        WHERE k.kind = $1), false);
END
$relay$;
-- +goose StatementEnd

-- Serializes the producers of one key until their transaction ends: ids are given at INSERT but seen at COMMIT.
-- +goose StatementBegin
CREATE FUNCTION {{.In "relay_key_lock"}}(key text) RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
AS $relay$
    SELECT pg_catalog.pg_advisory_xact_lock(
        pg_catalog.hashtextextended($1, pg_catalog.hashtextextended({{.Lock "key"}}, 0)))
$relay$;
-- +goose StatementEnd

-- +goose Down
{{- if not .DropData}}
-- +goose StatementBegin
DO $relay$
BEGIN
    IF EXISTS (SELECT FROM {{.In "relay_kinds"}}) OR EXISTS (SELECT FROM {{.In "relay_closed_keys"}})
       OR EXISTS (SELECT FROM {{.In "relay_replays"}} WHERE finished_at IS NULL) THEN
        RAISE EXCEPTION 'relay_kinds, relay_closed_keys or relay_replays holds rows' USING ERRCODE = 'RL001';
    END IF;
END
$relay$;
-- +goose StatementEnd
{{- end}}
DROP FUNCTION IF EXISTS {{.In "relay_key_lock"}}(text);
DROP FUNCTION IF EXISTS {{.In "relay_owns"}}(text, text, bigint);
DROP FUNCTION IF EXISTS {{.In "relay_notify"}}();
DROP TABLE {{.In "relay_replays"}};
DROP TABLE {{.In "relay_closed_keys"}};
DROP TABLE {{.In "relay_kinds"}};
