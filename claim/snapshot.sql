-- Who keeps vacuum from removing what was drained: the session, prepared transaction or replication slot with the
-- oldest snapshot or transaction id. backend_xmin is visible without any privilege, the times aren't.
SELECT pid, age_seconds, state, application, xmin::text
FROM (
    SELECT a.pid, coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8 AS age_seconds,
           coalesce(a.state, a.backend_type, 'unknown') AS state, coalesce(a.application_name, '') AS application,
           CASE WHEN a.backend_xmin IS NULL OR age(a.backend_xid) > age(a.backend_xmin)
                THEN a.backend_xid ELSE a.backend_xmin END AS xmin
    FROM pg_stat_activity AS a
    WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.datname IS NULL)
      AND (a.backend_type IS NULL OR a.backend_type <> 'autovacuum worker')
    UNION ALL
    SELECT 0, extract(epoch FROM clock_timestamp() - p.prepared)::float8, 'prepared transaction', p.gid, p.transaction
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()
    UNION ALL
    SELECT coalesce(r.active_pid, 0), 0, 'replication slot', r.slot_name, r.xmin
    FROM pg_replication_slots AS r
) AS h
WHERE xmin IS NOT NULL
ORDER BY age(xmin) DESC, age_seconds DESC
LIMIT 1
