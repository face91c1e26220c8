-- Counts of dead jobs for each kind, over its first rows only. An old worker's done job may keep its error, so the
-- index holds a few that aren't dead.
--
-- $1 kinds   $2 most rows of a kind
SELECT k.kind, c.n::integer, c.dead::integer
FROM unnest($1::text[]) AS k (kind)
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE e.status = 'dead') AS dead
    FROM (
        SELECT j.status
        FROM :jobs AS j
        WHERE j.finished_at IS NOT NULL AND j.last_error IS NOT NULL AND j.kind = k.kind
        ORDER BY j.id
        LIMIT $2::integer
    ) AS e
) AS c
