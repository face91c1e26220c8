-- The next finished jobs of a kind, in the order in which they finished, and those of them that a replay copies.
--
-- The slice is bounded by what is looked at, not by what matches. It is cut at the end of an instant by whoever reads
-- it: the index knows no order among jobs that finished at one.
--
-- $1 kind   $2, $3 finished from, before   $4 most rows to look at   $5 above this id   $6 key, NULL: any
-- $7 destination that must have been missed, or ''
WITH slice AS MATERIALIZED (
    SELECT j.id, j.kind, j.key, j.status, j.replay_of, j.delivered, j.finished_at,
           coalesce(pg_column_size(j.payload), 0) + coalesce(pg_column_size(j.body), 0) AS size
    FROM :jobs AS j
    WHERE j.kind = $1::text
      AND j.finished_at IS NOT NULL
      AND j.finished_at >= $2::timestamptz
      AND j.finished_at < $3::timestamptz
    ORDER BY j.finished_at
    LIMIT $4::integer
)
SELECT l.n::integer, l.first, l.last, 0::bigint, p.id, p.kind, p.finished_at, p.size::integer,
       $7::text <> '' AND coalesce(p.delivered, '{}') @> ARRAY[$7::text]
FROM (SELECT count(*) AS n, min(finished_at) AS first, max(finished_at) AS last FROM slice) AS l
LEFT JOIN slice AS p ON p.status = 'done' AND p.replay_of IS NULL
    AND p.id > $5::bigint
    AND ($6::text IS NULL OR p.key = $6::text)
