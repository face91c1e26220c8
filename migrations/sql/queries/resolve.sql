-- The schema in which an unqualified table name is found, else the one in which it would be created.
SELECT coalesce(
    (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)),
    current_schema())::text
