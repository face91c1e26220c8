-- Begins a replay: a new one, or again one that was seen finished. Of two processes that begin at once one does, and
-- both go on with the row that is there then.
--
-- $1 name   $2 filters   $3 started_at of the finished one that it replaces, or NULL
INSERT INTO :relay_replays AS r (name, filters)
VALUES ($1::text, $2::jsonb)
ON CONFLICT (name) DO UPDATE
SET filters = excluded.filters, position = 0, copied = 0, started_at = excluded.started_at, finished_at = NULL
WHERE r.finished_at IS NOT NULL AND r.started_at = $3::timestamptz
