-- How many keys of each kind are closed, over its first rows only.
--
-- $1 kinds   $2 most rows of a kind to look at
SELECT k.kind, c.looked::integer, c.keys::integer
FROM unnest($1::text[]) AS k (kind)
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, count(DISTINCT r.key) FILTER (WHERE d.status = 'dead') AS keys
    FROM (
        SELECT c.key, c.job FROM :relay_closed_keys AS c WHERE c.kind = k.kind ORDER BY c.key, c.job LIMIT $2::integer
    ) AS r
    LEFT JOIN :jobs AS d ON d.id = r.job
) AS c
WHERE c.looked > 0
