-- The kinds that have dead jobs: a skip scan, an index descent for each.
WITH RECURSIVE kinds AS (
    (SELECT j.kind FROM :jobs AS j
     WHERE j.finished_at IS NOT NULL AND j.last_error IS NOT NULL
     ORDER BY j.kind, j.id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.kind FROM :jobs AS j
            WHERE j.finished_at IS NOT NULL AND j.last_error IS NOT NULL AND j.kind > k.kind
            ORDER BY j.kind, j.id LIMIT 1)
    FROM kinds AS k
    WHERE k.kind IS NOT NULL
)
SELECT kind FROM kinds WHERE kind IS NOT NULL
