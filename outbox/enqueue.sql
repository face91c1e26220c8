-- Inserts many jobs in one statement and wakes an idle relay when the transaction commits.
--
-- Arrays instead of VALUES: the statement has the same text for any number of jobs, so one plan serves all, and there is
-- no limit of 65,535 parameters. Every parameter is the text of an array: that works in each mode of the protocol, with
-- every driver, and through a transaction-mode pooler. ORDER BY makes the ids follow the order given.
--
-- woken is joined, not called for each row: MATERIALIZED runs it once. The lines marked "when given" are left out
-- when the jobs leave max_attempts to the table's own default.
WITH new AS (
    INSERT INTO jobs (
        kind, key, payload, body, headers, run_at, priority
        , max_attempts -- when given
    )
    SELECT
        j.kind, j.key, j.payload::jsonb, decode(j.body, 'base64'), j.headers::jsonb, coalesce(j.run_at, now()), j.priority
        , j.max_attempts -- when given
    FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::smallint[]
        , $8::integer[] -- when given
    ) WITH ORDINALITY AS j (
        kind, key, payload, body, headers, run_at, priority
        , max_attempts -- when given
        , place
    )
    ORDER BY j.place
    RETURNING id
), woken AS MATERIALIZED (
    SELECT count(*) FROM relay_notify()
)
SELECT new.id FROM new CROSS JOIN woken
