-- The kinds that have closed keys: a skip scan, an index descent for each.
WITH RECURSIVE kinds AS (
    (SELECT c.kind FROM :relay_closed_keys AS c ORDER BY c.kind LIMIT 1)
    UNION ALL
    SELECT (SELECT c.kind FROM :relay_closed_keys AS c WHERE c.kind > k.kind ORDER BY c.kind LIMIT 1)
    FROM kinds AS k
    WHERE k.kind IS NOT NULL
)
SELECT kind FROM kinds WHERE kind IS NOT NULL
