-- Closed keys, with the dead job that holds each: a page in the order of (kind, key, job).
--
-- A row counts only while its job is still dead. What waits behind it is counted in the order index, as far as $6.
--
-- $1 kinds, NULL: any   $2 key, NULL: any   above this: $3 kind, $4 key, $5 job   $6 most jobs to count behind a key
-- $7 most rows
SELECT c.kind, c.key, c.job, c.closed_at, d.attempts, d.max_attempts, coalesce(d.last_error, ''),
       (SELECT count(*)::integer
        FROM (SELECT FROM :jobs AS w
              WHERE w.finished_at IS NULL AND w.key IS NOT NULL AND w.kind = c.kind AND w.key = c.key
              ORDER BY w.id
              LIMIT $6::integer) AS w)
FROM :relay_closed_keys AS c
JOIN :jobs AS d ON d.id = c.job AND d.status = 'dead'
WHERE ($1::text[] IS NULL OR c.kind = ANY ($1::text[]))
  AND ($2::text IS NULL OR c.key = $2::text)
  AND (c.kind, c.key, c.job) > ($3::text, $4::text, $5::bigint)
ORDER BY c.kind, c.key, c.job
LIMIT $7::integer
