-- Which of these ids there are, in whatever status.
--
-- $1 ids
SELECT count(*) FROM :jobs AS j WHERE j.id = ANY ($1::bigint[])
