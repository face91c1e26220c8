-- The next jobs in the order of id, whatever they are, and those of them that a replay copies; the same columns as
-- replay_finished.sql. Bounded by what is looked at.
--
-- $1 above this id   $2 most rows to look at   $3 kind or ''   $4, $5 finished from, before   $6 key, NULL: any
-- $7 destination that must have been missed, or ''
WITH slice AS MATERIALIZED (
    SELECT j.id, j.kind, j.key, j.status, j.replay_of, j.delivered, j.finished_at,
           coalesce(pg_column_size(j.payload), 0) + coalesce(pg_column_size(j.body), 0) AS size
    FROM :jobs AS j
    WHERE j.id > $1::bigint
    ORDER BY j.id
    LIMIT $2::integer
)
SELECT l.n::integer, NULL::timestamptz, NULL::timestamptz, l.last, p.id, p.kind, p.finished_at, p.size::integer,
       $7::text <> '' AND coalesce(p.delivered, '{}') @> ARRAY[$7::text]
FROM (SELECT count(*) AS n, coalesce(max(id), 0) AS last FROM slice) AS l
LEFT JOIN slice AS p ON p.status = 'done' AND p.replay_of IS NULL
    AND ($3::text = '' OR p.kind = $3::text)
    AND p.finished_at >= $4::timestamptz
    AND p.finished_at < $5::timestamptz
    AND ($6::text IS NULL OR p.key = $6::text)
