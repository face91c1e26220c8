-- The read at the heart of a claim, for one kind and priority. Its plan must be a walk of the pending index, without
-- a sort; 'relay check' asks for it with the settings that claims make.
EXPLAIN (FORMAT JSON)
SELECT id FROM jobs
WHERE finished_at IS NULL AND status <> ALL ('{running,done,dead}'::text[])
  AND kind = 'relay.check' AND priority = 0 AND run_at <= statement_timestamp()
ORDER BY run_at, id
LIMIT 500
FOR UPDATE SKIP LOCKED
