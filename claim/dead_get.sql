-- One dead job whole.
--
-- $1 id
SELECT j.id, j.kind, j.key, j.attempts, j.max_attempts, j.last_error, j.created_at, j.finished_at, j.delivered,
       j.replay_of, j.headers::text, j.payload::text, j.body
FROM :jobs AS j
WHERE j.id = $1::bigint AND j.status = 'dead'
