-- What the current user lacks of what the relay's statements need; $1 is the table, quoted. The second column names the
-- commands that alone need it, '' is relay run itself. The helper tables and functions live in the table's schema. A
-- sequence that a default takes the next value of (bigserial) is asked for, an identity's needs nothing. The
-- trigger that closes keys runs as its owner and needs nothing of whoever fires it.
WITH home AS (
    SELECT oid AS jobs, relnamespace AS schema FROM pg_class WHERE oid = to_regclass($1::text)
), needed (name, privilege, commands) AS (
    SELECT c.relname, p.privilege, p.commands
    FROM home JOIN pg_class c ON c.oid = home.jobs
    CROSS JOIN (VALUES ('SELECT', ''), ('UPDATE', ''), ('DELETE', ''), ('INSERT', 'relay enqueue, relay replay')) p (privilege, commands)
    UNION ALL
    SELECT * FROM (VALUES
        ('relay_migrations'::name, 'SELECT', ''),
        ('relay_kinds', 'SELECT', ''), ('relay_kinds', 'INSERT', ''), ('relay_kinds', 'UPDATE', 'relay kinds set'),
        ('relay_closed_keys', 'SELECT', ''), ('relay_closed_keys', 'DELETE', ''),
        ('relay_replays', 'SELECT', 'relay replay'), ('relay_replays', 'INSERT', 'relay replay'), ('relay_replays', 'UPDATE', 'relay replay')
    ) v
)
SELECT 'USAGE of the schema ' || n.nspname, ''
FROM home JOIN pg_namespace n ON n.oid = home.schema
WHERE NOT has_schema_privilege(n.oid, 'USAGE')
UNION ALL
SELECT needed.privilege || ' on ' || c.relname, needed.commands
FROM home JOIN pg_class c ON c.relnamespace = home.schema JOIN needed ON needed.name = c.relname
WHERE NOT has_table_privilege(c.oid, needed.privilege)
UNION ALL
SELECT 'USAGE of the sequence ' || s.relname, 'relay enqueue, relay replay'
FROM home
JOIN pg_attrdef d ON d.adrelid = home.jobs
JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
JOIN pg_class s ON s.oid = p.refobjid
WHERE CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') END
UNION ALL
SELECT 'EXECUTE of ' || f.oid::regprocedure::text, ''
FROM home JOIN pg_proc f ON f.pronamespace = home.schema
WHERE f.proname IN ('relay_notify', 'relay_owns', 'relay_key_lock') AND NOT has_function_privilege(f.oid, 'EXECUTE')
ORDER BY 1
