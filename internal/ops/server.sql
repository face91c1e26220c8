-- What kind of server this is. pg_backend_pid() differs from the process id that the connection was given when a
-- pooler stands between.
SELECT current_setting('server_version_num')::integer,
       current_setting('server_version'),
       current_database()::text,
       pg_is_in_recovery(),
       current_setting('transaction_read_only')::boolean,
       pg_backend_pid()::bigint
