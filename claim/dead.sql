-- Dead: for an operator to look at. Only while the claim holds; the token stays and says who let it die.
--
-- $1 token   a job each: $2 id, $3 reason, $4 delivered as an array literal or ''
UPDATE :jobs AS j
SET status = 'dead',
    finished_at = statement_timestamp(),
    leased_until = NULL,
    last_error = o.reason,
    delivered = CASE WHEN o.delivered = '' THEN j.delivered ELSE o.delivered::text[] END
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS o (id, reason, delivered)
WHERE j.id = o.id
  AND j.lease_token = $1::bigint
  AND j.status <> ALL ('{ready,done,dead}')
RETURNING j.id
