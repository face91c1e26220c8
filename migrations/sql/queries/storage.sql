-- The storage settings of a table ($1, quoted).
SELECT o.option_name, o.option_value
FROM pg_class c, pg_options_to_table(c.reloptions) o
WHERE c.oid = to_regclass($1)
