-- Notes on the originals where their copies have arrived, in the transaction that settles the copies.
--
-- It comes before the settlements, since those may delete the copies, and under the same fence: what it locks here is
-- what they will match. A replay to one destination begins with the others in `delivered`, so only what was accepted now
-- counts. An original that isn't done any more is somebody's new round and stays as it is.
--
-- $1 token   a copy each: $2 id, $3 destinations that accepted it now, an array literal   $4 whether it is done
WITH copy AS MATERIALIZED (
    SELECT j.replay_of, c.accepted::text[] AS accepted
    FROM unnest($2::bigint[], $3::text[]) AS c (id, accepted)
    JOIN :jobs AS j ON j.id = c.id
    WHERE j.lease_token = $1::bigint
      AND j.status <> ALL (CASE WHEN $4::boolean THEN '{done}'::text[] ELSE '{ready,done,dead}'::text[] END)
    FOR UPDATE OF j
), original AS MATERIALIZED (
    SELECT c.replay_of AS id, array_agg(DISTINCT a.destination) AS accepted
    FROM copy AS c
    CROSS JOIN LATERAL unnest(c.accepted) AS a (destination)
    GROUP BY c.replay_of
)
UPDATE :jobs AS j
SET delivered = coalesce(j.delivered, '{}') || ARRAY (
        SELECT a.destination FROM unnest(o.accepted) AS a (destination)
        WHERE a.destination <> ALL (coalesce(j.delivered, '{}')))
FROM original AS o
WHERE j.id = o.id
  AND j.status = 'done'
  AND NOT coalesce(j.delivered, '{}') @> o.accepted
