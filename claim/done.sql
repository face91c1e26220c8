-- Done: every destination has accepted these jobs. One statement for each set of destinations.
--
-- Also while the row isn't claimed any more (reaped, or even dead), as long as nobody else has claimed it since: the
-- token proves that, and a late acknowledgement saves a duplicate. Never `status = 'running'`: where an index on running rows exists the
-- planner walks it for each row. A done job keeps its token: it says who finished it.
--
-- Since the claim the row may have got destinations that the holder doesn't know of, from its own death or a replay:
-- what has accepted the job stays noted.
--
-- $1 ids   $2 token   $3 all destinations that have accepted them, NULL leaves them as they are
UPDATE :jobs AS j
SET status = 'done',
    finished_at = statement_timestamp(),
    leased_until = NULL,
    last_error = NULL,
    delivered = CASE WHEN $3::text[] IS NULL THEN j.delivered
                     WHEN j.delivered IS NULL OR j.delivered <@ $3::text[] THEN $3::text[]
                     ELSE j.delivered || ARRAY (SELECT d FROM unnest($3::text[]) AS d WHERE d <> ALL (j.delivered)) END
WHERE j.id = ANY ($1::bigint[])
  AND j.lease_token = $2::bigint
  AND j.status <> 'done'
RETURNING j.id
