-- The (kind, priority) pairs of the newest jobs, finished or not: where the skip scan of the pending index takes too long,
-- since a held snapshot keeps what was drained, they tell most of what there is. Finished jobs are rows like others in
-- the primary key, so a bounded number of them is read.
--
-- $1 how many jobs
SELECT DISTINCT n.kind, n.priority
FROM (SELECT j.kind, j.priority FROM :jobs AS j ORDER BY j.id DESC LIMIT $1::integer) AS n
