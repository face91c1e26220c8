-- How far the index build of one session ($1) is, and whose transaction it waits for.
SELECT phase,
    CASE WHEN tuples_total > 0 THEN 100 * tuples_done / tuples_total WHEN blocks_total > 0 THEN 100 * blocks_done / blocks_total ELSE 0 END,
    coalesce(current_locker_pid, 0)::bigint
FROM pg_stat_progress_create_index
WHERE pid = $1
