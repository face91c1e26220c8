-- The columns of a table ($1, quoted): name, type, NOT NULL, whether an INSERT may leave it out, its collation where that
-- isn't the database's ('' otherwise), quoted and qualified, and whether equal texts are the same bytes under it.
SELECT a.attname, format_type(a.atttypid, NULL), a.attnotnull, a.atthasdef OR a.attidentity <> '',
    CASE WHEN c.oid IS DISTINCT FROM t.typcollation THEN coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.collname), '') ELSE '' END,
    coalesce(c.collisdeterministic, true)
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
