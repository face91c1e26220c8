-- What kind of relation the table ($1, quoted) is, and whether id alone is unique.
SELECT c.relkind::text, c.relpersistence::text, c.relispartition, c.relhassubclass,
    EXISTS (
        SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
          AND i.indexprs IS NULL AND a.attname = 'id')
FROM pg_class c
WHERE c.oid = to_regclass($1)
