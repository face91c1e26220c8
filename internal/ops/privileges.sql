-- What the relay's statements need and the current user lacks; $1 is the table, quoted. The helper tables and
-- functions live in the table's schema. Triggers run with the rights of whoever fires them, so the closed keys that
-- they keep count too.
WITH home AS (
    SELECT relnamespace AS schema FROM pg_class WHERE oid = to_regclass($1::text)
), needed (name, privilege) AS (
    SELECT relname, p FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE oid = to_regclass($1::text)
    UNION ALL
    SELECT * FROM (VALUES ('relay_kinds'::name, 'SELECT'), ('relay_kinds', 'INSERT'), ('relay_closed_keys', 'SELECT'),
                          ('relay_closed_keys', 'INSERT'), ('relay_closed_keys', 'DELETE')) v
)
SELECT 'USAGE of the schema ' || n.nspname
FROM home JOIN pg_namespace n ON n.oid = home.schema
WHERE NOT has_schema_privilege(n.oid, 'USAGE')
UNION ALL
SELECT needed.privilege || ' on ' || c.relname
FROM home JOIN pg_class c ON c.relnamespace = home.schema JOIN needed ON needed.name = c.relname
WHERE NOT has_table_privilege(c.oid, needed.privilege)
UNION ALL
SELECT 'EXECUTE of ' || f.oid::regprocedure::text
FROM home JOIN pg_proc f ON f.pronamespace = home.schema
WHERE f.proname IN ('relay_notify', 'relay_owns', 'relay_key_lock') AND NOT has_function_privilege(f.oid, 'EXECUTE')
ORDER BY 1
