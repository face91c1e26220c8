-- Those of the named jobs that a replay copies; the same columns as replay_finished.sql.
--
-- $1 ids   $2 kind or ''   $3, $4 finished from, before   $5 key, NULL: any
-- $6 destination that must have been missed, or ''
SELECT 0, NULL::timestamptz, NULL::timestamptz, 0::bigint, j.id, j.kind, j.finished_at,
       coalesce(pg_column_size(j.payload), 0) + coalesce(pg_column_size(j.body), 0),
       $6::text <> '' AND coalesce(j.delivered, '{}') @> ARRAY[$6::text]
FROM :jobs AS j
WHERE j.id = ANY ($1::bigint[])
  AND j.status = 'done' AND j.replay_of IS NULL
  AND ($2::text = '' OR j.kind = $2::text)
  AND j.finished_at >= $3::timestamptz
  AND j.finished_at < $4::timestamptz
  AND ($5::text IS NULL OR j.key = $5::text)
