-- Whether the schema ($1), the table and the bookkeeping ($2, $3: quoted and qualified) exist.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1), to_regclass($2) IS NOT NULL, to_regclass($3) IS NOT NULL
