-- Who holds the table ($1, quoted), oldest transaction first: for a message that an operator can act on.
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), coalesce(a.state, ''),
    coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = to_regclass($1) AND l.granted AND l.pid <> pg_backend_pid()
GROUP BY a.pid, a.application_name, a.backend_type, a.state, a.xact_start
ORDER BY a.xact_start NULLS LAST
LIMIT 3
