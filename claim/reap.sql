-- Ends expired leases: ready again, or dead when the attempts are used up. Any process may do it for any relay, so rows
-- that another one holds are skipped, and the predicate is checked again under the lock. Only rows with a token: what
-- old workers hold is theirs. The token stays, so a late acknowledgement still counts as long as nobody claims the job.
--
-- $1 ids
WITH expired AS MATERIALIZED (
    SELECT j.id
    FROM :jobs AS j
    WHERE j.id = ANY ($1::bigint[])
      AND j.lease_token IS NOT NULL
      AND coalesce(j.leased_until, '-infinity') < statement_timestamp()
      AND j.status <> ALL ('{ready,done,dead}')
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE :jobs AS j
SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'ready' END,
    finished_at = CASE WHEN j.attempts >= j.max_attempts THEN statement_timestamp() END,
    last_error = CASE WHEN j.attempts >= j.max_attempts THEN 'lease expired' ELSE j.last_error END,
    leased_until = NULL
WHERE j.id = ANY (ARRAY (SELECT id FROM expired))
RETURNING j.kind, j.priority, j.run_at, j.id, j.status = 'dead'
