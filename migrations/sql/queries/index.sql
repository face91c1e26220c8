-- What has an index's name ($1, quoted and qualified): whether it is an index of the table ($2, quoted), whether its build
-- ended, and its definition from the method on. The head of a definition is cut off by its length, not by what it looks
-- like: names may hold anything. NULL: a table, a view or a sequence has the name.
SELECT coalesce(i.indrelid = to_regclass($2), false), coalesce(i.indisvalid AND i.indisready, false),
    CASE WHEN i.indisunique THEN 'unique ' ELSE '' END || substr(pg_get_indexdef(i.indexrelid), 1 + length(
        'CREATE ' || CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END || 'INDEX ' || quote_ident(c.relname)
        || ' ON ' || quote_ident(n.nspname) || '.' || quote_ident(t.relname) || ' '))
FROM pg_class c
LEFT JOIN pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_class t ON t.oid = i.indrelid
LEFT JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE c.oid = to_regclass($1)
