-- Which of these copies aren't finished yet.
--
-- $1 ids
SELECT j.id FROM :jobs AS j WHERE j.id = ANY ($1::bigint[]) AND j.finished_at IS NULL ORDER BY j.id
