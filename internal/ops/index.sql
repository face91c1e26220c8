-- The pending index of the table $1 (quoted): by its columns and predicate, as its name may differ.
SELECT i.indexrelid::regclass::text, i.indisvalid AND i.indisready
FROM pg_index i
WHERE i.indrelid = to_regclass($1::text)
  AND pg_get_indexdef(i.indexrelid) LIKE '%(kind, priority DESC, run_at, id)%'
  AND pg_get_expr(i.indpred, i.indrelid) = '(finished_at IS NULL)'
ORDER BY i.indisvalid DESC
LIMIT 1
