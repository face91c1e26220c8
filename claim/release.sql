-- Given back with its attempt: it was never tried. Only while the claim holds. run_at stays, so the job keeps its
-- place, unless it waits for a paused address ($3 > 0).
--
-- $1 token   a job each: $2 id, $3 delay in microseconds or 0, $4 reason or '', $5 delivered as an array literal or ''
UPDATE :jobs AS j
SET status = 'ready',
    attempts = greatest(j.attempts, 1) - 1,
    run_at = CASE WHEN o.after > 0 THEN statement_timestamp() + o.after * interval '1 microsecond' ELSE j.run_at END,
    lease_token = NULL,
    leased_until = NULL,
    last_error = coalesce(nullif(o.reason, ''), j.last_error),
    delivered = CASE WHEN o.delivered = '' THEN j.delivered ELSE o.delivered::text[] END
FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) AS o (id, after, reason, delivered)
WHERE j.id = o.id
  AND j.lease_token = $1::bigint
  AND j.status <> ALL ('{ready,done,dead}')
RETURNING j.id
