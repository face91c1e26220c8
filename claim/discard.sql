-- Deletes dead jobs, and reopens the keys that they closed.
--
-- $1 ids
WITH gone AS (
    DELETE FROM :jobs AS j
    WHERE j.id = ANY ($1::bigint[]) AND j.status = 'dead'
    RETURNING j.id, j.kind, j.key
), reopened AS (
    DELETE FROM :relay_closed_keys AS c USING gone AS g
    WHERE c.kind = g.kind AND c.key = g.key AND c.job = g.id
)
SELECT id FROM gone
