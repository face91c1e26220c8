-- Ready again after a delay; the attempt counts.
--
-- Only while the claim holds: the token matches and nobody has given the job back. The join can only be a nested loop
-- over the primary key, by the transaction's settings.
--
-- $1 token   a job each: $2 id, $3 delay in microseconds, $4 alone, $5 reason, $6 delivered as an array literal or ''
UPDATE :jobs AS j
SET status = 'ready',
    run_at = statement_timestamp() + o.after * interval '1 microsecond',
    lease_token = NULL,
    leased_until = NULL,
    alone = o.alone,
    last_error = o.reason,
    delivered = CASE WHEN o.delivered = '' THEN j.delivered ELSE o.delivered::text[] END
FROM unnest($2::bigint[], $3::bigint[], $4::boolean[], $5::text[], $6::text[])
       AS o (id, after, alone, reason, delivered)
WHERE j.id = o.id
  AND j.lease_token = $1::bigint
  AND j.status <> ALL ('{ready,done,dead}')
RETURNING j.id
