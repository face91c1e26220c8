-- Done: every destination has accepted these jobs. One statement for each set of destinations.
--
-- Also while the row isn't claimed any more (reaped, or even dead), as long as nobody else has claimed it since: the
-- token proves that, and a late acknowledgement saves a duplicate. Never `status = 'running'`: where an index on running rows exists the
-- planner walks it for each row. A done job keeps its token: it says who finished it.
--
-- $1 ids   $2 token   $3 all destinations that have accepted them, NULL leaves them as they are
UPDATE :jobs AS j
SET status = 'done',
    finished_at = statement_timestamp(),
    leased_until = NULL,
    last_error = NULL,
    delivered = coalesce($3::text[], j.delivered)
WHERE j.id = ANY ($1::bigint[])
  AND j.lease_token = $2::bigint
  AND j.status <> 'done'
RETURNING j.id
