-- Unfinished copies among the first unfinished jobs of a kind: what a replay that was interrupted has left behind.
--
-- $1 kind   $2 most rows to look at
SELECT d.id
FROM (
    SELECT j.id, j.replay_of
    FROM :jobs AS j
    WHERE j.finished_at IS NULL AND j.kind = $1::text
    ORDER BY j.priority DESC, j.run_at, j.id
    LIMIT $2::integer
) AS d
WHERE d.replay_of IS NOT NULL
