-- Whether an index ($1, quoted and qualified) exists on a table ($2, quoted), and whether its build ended.
SELECT i.indisvalid
FROM pg_index i
WHERE i.indexrelid = to_regclass($1) AND i.indrelid = to_regclass($2)
