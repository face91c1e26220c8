-- What of a kind waits for relays and what for others, over its first unfinished rows only.
--
-- Whose age counts, and from when, is as in figures.sql.
--
-- $1 kind   $2 most rows to look at
SELECT count(*) >= $2::integer,
       count(*) FILTER (WHERE e.relay),
       coalesce(extract(epoch FROM statement_timestamp() - min(e.since) FILTER (WHERE e.relay AND e.counts)), 0)::float8,
       count(*) FILTER (WHERE NOT e.relay),
       coalesce(extract(epoch FROM statement_timestamp() - min(e.since) FILTER (WHERE NOT e.relay AND e.counts)), 0)::float8
FROM (
    SELECT CASE WHEN j.status = 'ready' THEN :relay_owns(j.kind, j.key, j.id) END AS relay,
           (j.run_at <= statement_timestamp() OR j.attempts = 0 AND j.last_error IS NOT NULL) AND a.since > '-infinity' AS counts,
           a.since
    FROM :jobs AS j
    CROSS JOIN LATERAL (SELECT CASE WHEN j.attempts = 0 AND j.last_error IS NULL OR j.replay_of IS NOT NULL THEN j.run_at
                                    ELSE coalesce(j.created_at, j.run_at) END AS since) AS a
    WHERE j.finished_at IS NULL AND j.kind = $1::text
    ORDER BY j.priority DESC, j.run_at, j.id
    LIMIT $2::integer
) AS e
