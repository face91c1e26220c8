-- The (kind, priority) pairs of the pending index: a skip scan, an index descent for each pair. Beside a held snapshot
-- each descent may step over what was drained, so the sweep runs it seldom then.
WITH RECURSIVE pair AS (
    (SELECT j.kind, j.priority FROM :jobs AS j
     WHERE j.finished_at IS NULL
     ORDER BY j.kind, j.priority DESC LIMIT 1)
    UNION ALL
    SELECT n.kind, n.priority
    FROM pair AS p
    CROSS JOIN LATERAL (
        (SELECT j.kind, j.priority FROM :jobs AS j
         WHERE j.finished_at IS NULL AND j.kind = p.kind AND j.priority < p.priority
         ORDER BY j.kind, j.priority DESC LIMIT 1)
        UNION ALL
        (SELECT j.kind, j.priority FROM :jobs AS j
         WHERE j.finished_at IS NULL AND j.kind > p.kind
         ORDER BY j.kind, j.priority DESC LIMIT 1)
        LIMIT 1
    ) AS n
)
SELECT kind, priority FROM pair
