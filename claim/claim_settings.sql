-- Settings of a claim's transaction, gone at its end; the time from which floors are reckoned.
--
-- The planner takes a bound that is a parameter for one that leaves 0.5 % of the rows, and then sorts a bitmap scan of
-- the whole kind; the statistics of a queue are always stale, so nothing but these settings keeps the index walk.
-- synchronous_commit off: a claim lost in a crash of Postgres costs a duplicate, never a loss. The last three fix the
-- text formats, for the exec modes that read text.
SELECT statement_timestamp(), count(set_config(name, value, true))
FROM (VALUES
    ('enable_bitmapscan', 'off'),
    ('enable_seqscan', 'off'),
    ('enable_sort', 'off'),
    ('enable_incremental_sort', 'off'),
    ('enable_indexscan', 'on'),
    ('enable_nestloop', 'on'),
    ('plan_cache_mode', 'force_custom_plan'),
    ('jit', 'off'),
    ('synchronous_commit', 'off'),
    ('statement_timeout', $1::text),
    ('TimeZone', 'UTC'),
    ('DateStyle', 'ISO, YMD'),
    ('bytea_output', 'hex')
) AS s (name, value)
