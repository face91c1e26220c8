-- Inserts copies of done jobs and moves the replay on, both or neither.
--
-- run locks the replay's row: of two processes that are at the same place the second waits here, sees that the place has
-- moved, and copies nothing. It also holds the rule that relays own the kinds whole: a copy that falls to an old worker
-- would be worked on, not sent. What has gone or changed since it was found is left out. ORDER BY makes the copies' ids
-- follow the originals'; created_at is the original's, so that the message says the same time.
--
-- $1 name   $2 started_at   $3 position as it must be   $4 position afterwards   $5 ids
-- a kind each: $6 kind, $7 destinations that its copies begin with, an array literal or ''
-- $8 destination that must have been missed, or ''
WITH run AS MATERIALIZED (
    SELECT 1
    FROM :relay_replays AS r
    WHERE r.name = $1::text AND r.started_at = $2::timestamptz AND r.position = $3::bigint AND r.finished_at IS NULL
      AND (SELECT count(*) FROM :relay_kinds AS k WHERE k.kind = ANY ($6::text[]) AND k.share = 100) = cardinality($6::text[])
    FOR UPDATE OF r
), copy AS (
    INSERT INTO :jobs (kind, key, headers, payload, body, priority, max_attempts, attempts, run_at, created_at, replay_of, delivered)
    SELECT j.kind, j.key, j.headers, j.payload, j.body, j.priority, j.max_attempts, 0, statement_timestamp(),
           coalesce(j.created_at, j.run_at), j.id, nullif(k.delivered, '')::text[]
    FROM :jobs AS j
    JOIN unnest($6::text[], $7::text[]) AS k (kind, delivered) ON k.kind = j.kind
    WHERE EXISTS (SELECT FROM run)
      AND j.id = ANY ($5::bigint[])
      AND j.status = 'done' AND j.replay_of IS NULL
      AND ($8::text = '' OR NOT coalesce(j.delivered, '{}') @> ARRAY[$8::text])
    ORDER BY j.id
    RETURNING id
), moved AS (
    UPDATE :relay_replays AS r
    SET position = $4::bigint, copied = r.copied + (SELECT count(*) FROM copy)
    WHERE r.name = $1::text AND EXISTS (SELECT FROM run)
    RETURNING r.copied
)
SELECT (SELECT copied FROM moved), ARRAY (SELECT id FROM copy ORDER BY id)
