-- The (kind, priority) pairs of the newest jobs, finished or not, once for each job: where the skip scan of the pending
-- index takes too long, since a held snapshot keeps what was drained, they tell most of what there is. Nothing is sorted or
-- gathered, so that rows come as they are found: where jobs are deleted as they settle, this walk may be cut off as well, and
-- what it met before that counts.
--
-- $1 how many jobs
SELECT j.kind, j.priority FROM :jobs AS j ORDER BY j.id DESC LIMIT $1::integer
