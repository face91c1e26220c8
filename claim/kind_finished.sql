-- Who finished what of a kind lately. A row with a token was claimed by a relay last, so a relay finished it; one without
-- was finished by somebody else.
--
-- A walk back over the index of finished jobs, bounded by its rows. It looks no further back than the last change of the
-- share: jobs of before were divided otherwise. Keys are what relay_owns divides: a job without one is a key of its own.
--
-- $1 kind   $2 how far back, in microseconds   $3 not before this time, NULL: any   $4 most rows
WITH lately AS MATERIALIZED (
    SELECT j.finished_at, j.status = 'done' AS done, j.lease_token IS NOT NULL AS relay,
           coalesce(j.key, j.id::text) COLLATE "C" AS key
    FROM :jobs AS j
    WHERE j.kind = $1::text
      AND j.finished_at IS NOT NULL
      AND j.finished_at >= greatest(statement_timestamp() - $2::bigint * interval '1 microsecond', $3::timestamptz)
    ORDER BY j.finished_at DESC
    LIMIT $4::integer
)
SELECT statement_timestamp(),
       CASE WHEN count(*) >= $4::integer THEN min(finished_at)
            ELSE greatest(statement_timestamp() - $2::bigint * interval '1 microsecond', $3::timestamptz) END,
       count(*) >= $4::integer,
       count(*) FILTER (WHERE relay AND done),
       count(*) FILTER (WHERE relay AND NOT done),
       count(DISTINCT key) FILTER (WHERE relay),
       min(finished_at) FILTER (WHERE relay AND done),
       count(*) FILTER (WHERE NOT relay AND done),
       count(*) FILTER (WHERE NOT relay AND NOT done),
       count(DISTINCT key) FILTER (WHERE NOT relay),
       min(finished_at) FILTER (WHERE NOT relay AND done)
FROM lately
