-- The next dead jobs in the order of id, of many kinds at once, and how far the page looked.
--
-- The page is bounded by what is looked at, not by what matches: a filter that matches little must not make one
-- statement walk over all of them.
--
-- $1 kinds   $2 above this id   $3 key, NULL: any   $4 part of the error or ''   $5, $6 finished from, before, NULL: any
-- $7 most rows to look at
WITH page AS MATERIALIZED (
    SELECT d.*
    FROM unnest($1::text[]) AS k (kind)
    CROSS JOIN LATERAL (
        SELECT j.id, j.kind, j.key, j.attempts, j.max_attempts, j.last_error, j.created_at, j.finished_at, j.delivered,
               j.replay_of, j.status
        FROM :jobs AS j
        WHERE j.finished_at IS NOT NULL AND j.last_error IS NOT NULL
          AND j.kind = k.kind AND j.id > $2::bigint
        ORDER BY j.id
        LIMIT $7::integer
    ) AS d
    ORDER BY d.id
    LIMIT $7::integer
)
SELECT l.n::integer, l.last, p.id, p.kind, p.key, p.attempts, p.max_attempts, p.last_error, p.created_at, p.finished_at,
       p.delivered, p.replay_of
FROM (SELECT count(*) AS n, coalesce(max(id), 0) AS last FROM page) AS l
LEFT JOIN page AS p ON p.status = 'dead'
    AND ($3::text IS NULL OR p.key = $3::text)
    AND ($4::text = '' OR strpos(p.last_error, $4::text) > 0)
    AND ($5::timestamptz IS NULL OR p.finished_at >= $5::timestamptz)
    AND ($6::timestamptz IS NULL OR p.finished_at < $6::timestamptz)
ORDER BY p.id
