-- Settings of a transaction that changes jobs by id, gone at its end.
--
-- Ids are found through the primary key, whatever the statistics say: no join over the table, no bitmap. What is
-- settled is durable ($2 'on'); remote_apply, where somebody wants that, is kept. Renewing a lease needs no flush
-- ($2 'off').
SELECT count(set_config(name, value, true))
FROM (VALUES
    ('enable_seqscan', 'off'),
    ('enable_bitmapscan', 'off'),
    ('enable_hashjoin', 'off'),
    ('enable_mergejoin', 'off'),
    ('enable_indexscan', 'on'),
    ('enable_nestloop', 'on'),
    ('plan_cache_mode', 'force_custom_plan'),
    ('jit', 'off'),
    ('synchronous_commit', CASE WHEN $2::text = 'on' AND current_setting('synchronous_commit') = 'remote_apply'
                                THEN 'remote_apply' ELSE $2::text END),
    ('statement_timeout', $1::text),
    ('TimeZone', 'UTC'),
    ('DateStyle', 'ISO, YMD'),
    ('bytea_output', 'hex')
) AS s (name, value)
