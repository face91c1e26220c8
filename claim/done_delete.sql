-- Done where done jobs aren't kept: the same predicate as done.sql, and the row goes.
--
-- $1 ids   $2 token
DELETE FROM :jobs AS j
WHERE j.id = ANY ($1::bigint[])
  AND j.lease_token = $2::bigint
  AND j.status <> 'done'
RETURNING j.id
