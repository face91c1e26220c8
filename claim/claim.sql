-- Takes due jobs under a lease.
--
-- One LATERAL branch for each (kind, priority) pair keeps each a pure walk of the pending index, and LIMIT counts what
-- is locked, under any plan. MATERIALIZED, and `= ANY (ARRAY (…))` in the UPDATE: `IN (SELECT … LIMIT …)` may be run
-- again for each row and take more than the limit, `UPDATE … FROM next` becomes a hash join over the table.
-- `status <> ALL`, not `= 'ready'`: else an adopted table's old index fits the predicate, and the planner walks that
-- one, past everybody else's rows. statement_timestamp(), as clock_timestamp() can't be an index condition. OFFSET 0
-- keeps the share a lookup for each pair rather than for each row.
--
-- A job weighs what is read of it. That is measured above the locks, not for rows that are skipped, and large values,
-- which lie outside the row and may be compressed, only as far as their stored sizes fit: reading 500 of them to send 8
-- would take seconds. The usual batch, small and within the bytes, is taken whole by one sum: the running sums cost a
-- tenth of the claim.
--
-- $1–$8 a part of a pair each: kind, priority, above this (run_at, id), most rows, open destinations as an array literal
-- or '', only jobs without a key, up to this run_at
-- $9 most rows in all   $10 most bytes   $11 lease in microseconds   $12 token   $13 NULL: any job; else ids: only these
-- when $14, else all but these. With NULL the condition is gone before planning.
WITH next AS MATERIALIZED (
    SELECT p.ord, d.id, d.run_at, m.stored,
           CASE WHEN m.stored <= 2000 THEN coalesce(octet_length(d.payload::text), 0) + coalesce(octet_length(d.body), 0)
                                           + coalesce(octet_length(d.headers::text), 0) END AS bytes
    FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::integer[], $6::text[],
                $7::boolean[], $8::timestamptz[])
           WITH ORDINALITY AS p (kind, priority, floor_at, floor_id, most, lacking, keyless, up_to, ord)
    CROSS JOIN LATERAL (
        SELECT k.share FROM :relay_kinds AS k WHERE k.kind = p.kind AND k.share > 0 OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT j.id, j.run_at, j.payload, j.body, j.headers
        FROM :jobs AS j
        WHERE j.finished_at IS NULL
          AND j.status <> ALL ('{running,done,dead}')
          AND j.kind = p.kind
          AND j.priority = p.priority
          AND (j.run_at, j.id) > (p.floor_at, p.floor_id)
          AND j.run_at <= least(p.up_to, statement_timestamp())
          AND (s.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
          AND NOT (p.keyless AND j.key IS NOT NULL)
          AND (p.lacking = '' OR NOT coalesce(j.delivered, '{}') @> p.lacking::text[])
          AND ($13::bigint[] IS NULL OR (j.id = ANY ($13::bigint[])) = $14::boolean)
        ORDER BY j.run_at, j.id
        LIMIT p.most
        FOR UPDATE OF j SKIP LOCKED
    ) AS d
    CROSS JOIN LATERAL (
        SELECT coalesce(pg_column_size(d.payload), 0) + coalesce(pg_column_size(d.body), 0)
               + coalesce(pg_column_size(d.headers), 0) AS stored
    ) AS m
    ORDER BY p.ord
    LIMIT $9::integer
), cut AS (
    SELECT id, bytes, row_number() OVER w AS n, sum(coalesce(bytes, stored)) OVER w AS least
    FROM next
    WINDOW w AS (ORDER BY ord, run_at, id ROWS UNBOUNDED PRECEDING)
), sized AS (
    SELECT c.id, c.n, sum(coalesce(c.bytes, (
               SELECT coalesce(octet_length(j.payload::text), 0) + coalesce(octet_length(j.body), 0)
                      + coalesce(octet_length(j.headers::text), 0) FROM :jobs AS j WHERE j.id = c.id
           ))) OVER (ORDER BY c.n ROWS UNBOUNDED PRECEDING) AS total
    FROM cut AS c
    WHERE c.n = 1 OR c.least <= $10::bigint
)
UPDATE :jobs AS j
SET status = 'running',
    attempts = least(j.attempts, 2147483646) + 1,
    leased_until = statement_timestamp() + $11::bigint * interval '1 microsecond',
    lease_token = $12::bigint
WHERE j.id = ANY (CASE WHEN (SELECT sum(bytes) FROM next HAVING count(bytes) = count(*)) <= $10::bigint
                       THEN ARRAY (SELECT id FROM next)
                       ELSE ARRAY (SELECT id FROM sized WHERE n = 1 OR total <= $10::bigint) END)
RETURNING j.id, j.kind, j.key, j.priority, j.payload::text, j.body, j.headers::text, j.attempts, j.max_attempts,
          j.alone, j.delivered, j.replay_of, j.run_at, j.created_at, (SELECT count(*) FROM next)
