-- Dead jobs by id, with the other filters; the same columns as dead_page.sql.
--
-- $1 ids   $2 kind or ''   $3 key, NULL: any   $4 part of the error or ''   $5, $6 finished from, before, NULL: any
SELECT 0, 0::bigint, j.id, j.kind, j.key, j.attempts, j.max_attempts, j.last_error, j.created_at, j.finished_at, j.delivered,
       j.replay_of
FROM :jobs AS j
WHERE j.id = ANY ($1::bigint[])
  AND j.status = 'dead'
  AND ($2::text = '' OR j.kind = $2::text)
  AND ($3::text IS NULL OR j.key = $3::text)
  AND ($4::text = '' OR strpos(j.last_error, $4::text) > 0)
  AND ($5::timestamptz IS NULL OR j.finished_at >= $5::timestamptz)
  AND ($6::timestamptz IS NULL OR j.finished_at < $6::timestamptz)
ORDER BY j.id
