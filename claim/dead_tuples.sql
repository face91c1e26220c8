-- What vacuum has yet to remove, as the statistics have it.
SELECT coalesce(pg_stat_get_dead_tuples($1::text::regclass), 0)
