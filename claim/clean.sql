-- Removes the old among the next finished jobs of a kind, in the order in which they finished.
--
-- The slice is bounded by what is looked at, not by what is removed: jobs that stay (dead ones, other people's) may be
-- many. Only rows with a token: what an old worker finished is its own; the walk has those in hand, so they aren't looked
-- up. Rows somebody holds are skipped, and the age is checked under the lock: an operator may have requeued the job. A
-- dead job that holds its key stays, however old: without it the key's later jobs would go on, and nobody decided so. Where
-- a closed key holds nothing it goes with its job.
--
-- $1 kind   $2 from this finished_at   $3 age of done ones, $4 of dead ones, in microseconds, NULL: they stay
-- $5 most rows to look at   $6 NULL: any job; else ids: only these when $7, else all but these
-- $8 removes nothing, and lists what it would remove   $9 a closed key holds jobs of the kind
WITH slice AS MATERIALIZED (
    SELECT j.id, j.finished_at,
           j.lease_token IS NOT NULL AND ($6::bigint[] IS NULL OR (j.id = ANY ($6::bigint[])) = $7::boolean) AS ours
    FROM :jobs AS j
    WHERE j.kind = $1::text
      AND j.finished_at IS NOT NULL
      AND j.finished_at >= $2::timestamptz
      AND j.finished_at < statement_timestamp() - least($3::bigint, $4::bigint) * interval '1 microsecond'
    ORDER BY j.finished_at
    LIMIT $5::integer
), old AS MATERIALIZED (
    SELECT j.id
    FROM :jobs AS j
    WHERE j.id = ANY (ARRAY (SELECT id FROM slice WHERE ours))
      AND j.finished_at < statement_timestamp()
            - CASE j.status WHEN 'done' THEN $3::bigint WHEN 'dead' THEN $4::bigint END * interval '1 microsecond'
      AND NOT ($9::boolean AND EXISTS (SELECT FROM :relay_closed_keys AS c WHERE c.kind = j.kind AND c.key = j.key AND c.job = j.id))
    FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM :jobs AS j WHERE NOT $8::boolean AND j.id = ANY (ARRAY (SELECT id FROM old)) RETURNING j.id, j.kind, j.key, j.status
), reopened AS (
    DELETE FROM :relay_closed_keys AS c USING gone AS g
    WHERE g.status = 'dead' AND c.kind = g.kind AND c.key = g.key AND c.job = g.id
)
SELECT (SELECT count(*) FROM gone)::integer,
       (SELECT count(*) FROM slice)::integer,
       (SELECT max(finished_at) FROM slice),
       CASE WHEN $8::boolean THEN ARRAY (SELECT id FROM old) END
