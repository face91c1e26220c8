-- Stamps the rows that were done or dead before the triggers existed as these would have: finished_at, without which they
-- would all be in the pending index, built later; and a reason where a dead row has none, without which the index of dead
-- jobs would leave it out, and so every list and count. The time is an estimate, when the last try was due. A thousand rows
-- a transaction, so that nobody waits long for a row; rows that somebody holds are left for the next round.

-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
DO $relay$
DECLARE
    at    bigint;
    moved bigint := 0;
    size  bigint;
BEGIN
    LOOP
        at := NULL;
        LOOP
            -- The walk must be one of the primary key: statistics of a queue are always stale, and a scan of the whole
            -- table for each batch would never end.
            PERFORM pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
                    pg_catalog.set_config('enable_sort', 'off', true), pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true);
            WITH batch AS MATERIALIZED (
                SELECT id FROM {{.Table}}
                WHERE id > coalesce(at, -9223372036854775808) AND status IN ('done', 'dead')
                  AND (finished_at IS NULL OR status = 'dead' AND last_error IS NULL)
                ORDER BY id LIMIT 1000
                FOR NO KEY UPDATE SKIP LOCKED
            ), stamped AS (
                UPDATE {{.Table}}
                SET finished_at = coalesce(finished_at, least(run_at, pg_catalog.now())),
                    last_error = CASE status WHEN 'dead' THEN coalesce(last_error, 'no reason recorded') ELSE last_error END
                WHERE id = ANY (ARRAY(SELECT id FROM batch))
            )
            SELECT pg_catalog.max(id), pg_catalog.count(*) INTO at, size FROM batch;
            COMMIT;
            EXIT WHEN size = 0;
            moved := moved + size;
            RAISE NOTICE '% finished jobs stamped', moved;
        END LOOP;
        EXIT WHEN NOT EXISTS (SELECT FROM {{.Table}} WHERE status IN ('done', 'dead')
                    AND (finished_at IS NULL OR status = 'dead' AND last_error IS NULL));
        COMMIT;
        PERFORM pg_catalog.pg_sleep(0.1);
    END LOOP;
END
$relay$;
-- +goose StatementEnd

-- +goose Down
