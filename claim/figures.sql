-- Counts of unfinished jobs for each pair, over its first rows only.
--
-- A job that was never tried counts from its run_at: it may have been enqueued long before. One that was moved to a
-- later time, by a retry or a paused destination, counts from where it began; a copy made by replay, whose created_at
-- is the original's, always from its run_at. One that was never tried and says why waits for a paused destination: it
-- counts for the age although its time was put off. One that had failed before can't be told from a retry that waits.
--
-- $1 kinds   $2 priorities   $3 most rows of a pair
SELECT p.ord::integer, c.n::integer, c.ready::integer, c.due::integer, c.running::integer, c.oldest
FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS p (kind, priority, ord)
CROSS JOIN LATERAL (
    SELECT count(*) AS n,
           count(*) FILTER (WHERE e.status = 'ready') AS ready,
           count(*) FILTER (WHERE e.due) AS due,
           count(*) FILTER (WHERE e.status = 'running') AS running,
           coalesce(extract(epoch FROM statement_timestamp() - min(e.since)
             FILTER (WHERE (e.due OR e.held) AND e.since > '-infinity')), 0)::float8 AS oldest
    FROM (
        SELECT j.status, j.status = 'ready' AND j.run_at <= statement_timestamp() AS due,
               j.status = 'ready' AND j.attempts = 0 AND j.last_error IS NOT NULL AS held,
               CASE WHEN j.attempts = 0 AND j.last_error IS NULL OR j.replay_of IS NOT NULL THEN j.run_at
                    ELSE coalesce(j.created_at, j.run_at) END AS since
        FROM :jobs AS j
        WHERE j.finished_at IS NULL AND j.kind = p.kind AND j.priority = p.priority
        ORDER BY j.run_at, j.id
        LIMIT $3::integer
    ) AS e
) AS c
