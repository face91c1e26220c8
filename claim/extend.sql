-- Renews leases that still hold. A job that somebody else claimed has another token; one that was reaped is ready.
--
-- $1 ids   $2 token   $3 lease in microseconds
UPDATE :jobs AS j
SET leased_until = statement_timestamp() + $3::bigint * interval '1 microsecond'
WHERE j.id = ANY ($1::bigint[])
  AND j.lease_token = $2::bigint
  AND j.status <> ALL ('{ready,done,dead}')
RETURNING j.id
