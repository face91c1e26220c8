-- A full new round: attempts 0, due now. The last error stays, as history, and so does what was delivered: only what
-- is missing is sent again. Without a token nobody who held the job before can change it.
--
-- $1 ids
UPDATE :jobs AS j
SET status = 'ready',
    attempts = 0,
    run_at = statement_timestamp(),
    finished_at = NULL,
    lease_token = NULL,
    leased_until = NULL,
    alone = false
WHERE j.id = ANY ($1::bigint[]) AND j.status = 'dead'
