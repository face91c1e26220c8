-- Transactions of this database that lock or change jobs now: a claim takes the table's lock before its snapshot, so each
-- one that may still go by an older share is among them. Readers aren't: an analyst's query holds up nobody.
--
-- $1 the table   $2 only these transactions, NULL: all
SELECT l.pid, l.virtualtransaction
FROM pg_locks AS l
WHERE l.locktype = 'relation'
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  AND l.relation = $1::text::regclass
  AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
  AND l.granted
  AND l.pid <> pg_backend_pid()
  AND ($2::text[] IS NULL OR l.virtualtransaction = ANY ($2::text[]))
GROUP BY l.pid, l.virtualtransaction
