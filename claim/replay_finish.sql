-- Marks a replay as finished, unless another process has moved it on or begun it again.
--
-- $1 name   $2 started_at   $3 position
UPDATE :relay_replays AS r
SET finished_at = statement_timestamp()
WHERE r.name = $1::text AND r.started_at = $2::timestamptz AND r.position = $3::bigint AND r.finished_at IS NULL
RETURNING r.copied
