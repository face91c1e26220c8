-- Takes due jobs of kinds that keep the order of their keys: for each key a run that starts at its oldest unfinished job
-- and has no gap.
--
-- The walk goes from key to key by the order index, one descent each: (key, id) > (key, the largest id) is the next key.
-- `NOT EXISTS (an earlier unfinished job)` would walk a long key once for each of its jobs. A key is open when its oldest
-- unfinished job is ready, due and ours; whatever else that job is, it holds its key. `closes`: a key is also held by a
-- job of it that is dead, as long as it is.
--
-- The walk meets the index entries of what was done until vacuum has removed them, and beside an old snapshot that isn't
-- soon. Keys that the process knows to have had nothing unfinished below some id need no walk: it looks there at once.
--
-- What is locked is looked at again as it is then. A candidate that another process holds, or that has changed since the
-- snapshot, is missing from the run, and the run ends before it. Runs share the batch evenly, and the bytes cut the
-- later places of all runs before the first place of any. Fewer keys and longer runs leave keys for other workers.
--
-- Jobs of these kinds without a key are taken by the other claim; $12 are those that a sweep has found.
--
-- $1–$8 a kind each: kind, key to start from, closes, most rows, most keys to walk, most open keys, most rows of a key,
-- open destinations as an array literal or ''
-- $9–$11 a known key each, and each once: place of its kind in $1, key, nothing of it is unfinished below this id
-- $12 ids without a key   $13 most rows in all   $14 most bytes   $15 lease in microseconds   $16 token
WITH asked AS MATERIALIZED (
    SELECT p.*, s.share
    FROM unnest($1::text[], $2::text[], $3::boolean[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
                $8::text[])
           WITH ORDINALITY AS p (kind, start, closes, most, keys, heads, run, lacking, ord)
    CROSS JOIN LATERAL (
        SELECT k.share FROM :relay_kinds AS k WHERE k.kind = p.kind AND k.share > 0 OFFSET 0
    ) AS s
), walked AS MATERIALIZED (
    SELECT p.ord, w.key, w.id, w.n, w.opened, w.open
    FROM asked AS p
    CROSS JOIN LATERAL (
        WITH RECURSIVE walk AS (
            -- The sub-select gives the walk the collation of the column, whatever that is; its condition is never met.
            SELECT CASE WHEN false THEN (SELECT j.key FROM :jobs AS j LIMIT 0) ELSE p.start END AS key, -9223372036854775808 AS edge, NULL::bigint AS id, 0 AS n, 0 AS opened, false AS open
            UNION ALL
            SELECT h.key, 9223372036854775807, h.id, w.n + 1, w.opened + h.open::integer, h.open
            FROM walk AS w
            CROSS JOIN LATERAL (
                SELECT j.key, j.id,
                       j.status = 'ready' AND j.run_at <= statement_timestamp()
                         AND (p.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
                         AND (p.lacking = '' OR NOT coalesce(j.delivered, '{}') @> p.lacking::text[])
                         AND NOT (p.closes AND EXISTS (
                               SELECT FROM :relay_closed_keys AS c JOIN :jobs AS d ON d.id = c.job
                               WHERE c.kind = j.kind AND c.key = j.key AND d.status = 'dead')) AS open
                FROM :jobs AS j
                WHERE j.finished_at IS NULL
                  AND j.key IS NOT NULL
                  AND j.kind = p.kind
                  AND (j.key, j.id) > (w.key, w.edge)
                ORDER BY j.key, j.id
                LIMIT 1
            ) AS h
            WHERE w.n < p.keys AND w.opened < p.heads
        )
        SELECT key, id, n, opened, open FROM walk WHERE n > 0
    ) AS w
    UNION ALL
    SELECT p.ord, a.key, h.id, 0, 0, h.open
    FROM unnest($9::integer[], $10::text[], $11::bigint[]) AS a (ord, key, above)
    JOIN asked AS p ON p.ord = a.ord
    CROSS JOIN LATERAL (
        SELECT j.id,
               j.status = 'ready' AND j.run_at <= statement_timestamp()
                 AND (p.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
                 AND (p.lacking = '' OR NOT coalesce(j.delivered, '{}') @> p.lacking::text[])
                 AND NOT (p.closes AND EXISTS (
                       SELECT FROM :relay_closed_keys AS c JOIN :jobs AS d ON d.id = c.job
                       WHERE c.kind = j.kind AND c.key = j.key AND d.status = 'dead')) AS open
        FROM :jobs AS j
        WHERE j.finished_at IS NULL AND j.key IS NOT NULL AND j.kind = p.kind AND j.key = a.key AND j.id >= a.above
        ORDER BY j.id
        LIMIT 1
    ) AS h
), looked AS MATERIALIZED (
    SELECT ord, max(n) AS n, count(*) FILTER (WHERE open) AS opened, (array_agg(key ORDER BY n DESC))[1] AS key
    FROM walked
    GROUP BY ord
), run AS MATERIALIZED (
    SELECT p.ord, p.kind, w.key, p.lacking, c.id, c.place
    FROM walked AS w
    JOIN asked AS p ON p.ord = w.ord
    JOIN looked AS l ON l.ord = w.ord
    CROSS JOIN LATERAL (
        SELECT r.id, row_number() OVER (ORDER BY r.id) AS place
        FROM (
            SELECT j.id
            FROM :jobs AS j
            WHERE j.finished_at IS NULL
              AND j.key IS NOT NULL
              AND j.kind = p.kind
              AND j.key = w.key
              AND j.id >= w.id
            ORDER BY j.id
            LIMIT least(p.run, (p.most + l.opened - 1) / l.opened)
        ) AS r
    ) AS c
    WHERE w.open
), held AS MATERIALIZED (
    SELECT l.ord, l.key, l.place, l.id, m.stored,
           CASE WHEN m.stored <= 2000 THEN coalesce(octet_length(l.payload::text), 0) + coalesce(octet_length(l.body), 0)
                                           + coalesce(octet_length(l.headers::text), 0) END AS bytes
    FROM (
        SELECT r.ord, r.key, r.place, d.*
        FROM run AS r
        CROSS JOIN LATERAL (
            SELECT j.id, j.payload, j.body, j.headers
            FROM :jobs AS j
            WHERE j.id = r.id
              AND j.kind = r.kind
              AND j.key = r.key
              AND j.finished_at IS NULL
              AND j.status <> ALL ('{running,done,dead}')
              AND j.run_at <= statement_timestamp()
              AND (r.lacking = '' OR NOT coalesce(j.delivered, '{}') @> r.lacking::text[])
            FOR UPDATE OF j SKIP LOCKED
        ) AS d
        UNION ALL
        SELECT d.*
        FROM unnest($12::bigint[]) AS a (id)
        CROSS JOIN LATERAL (
            SELECT p.ord, NULL, 1, j.id, j.payload, j.body, j.headers
            FROM :jobs AS j
            JOIN asked AS p ON p.kind = j.kind
            WHERE j.id = a.id
              AND j.key IS NULL
              AND j.finished_at IS NULL
              AND j.status <> ALL ('{running,done,dead}')
              AND j.run_at <= statement_timestamp()
              AND (p.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
              AND (p.lacking = '' OR NOT coalesce(j.delivered, '{}') @> p.lacking::text[])
            FOR UPDATE OF j SKIP LOCKED
        ) AS d
    ) AS l
    CROSS JOIN LATERAL (
        SELECT coalesce(pg_column_size(l.payload), 0) + coalesce(pg_column_size(l.body), 0)
               + coalesce(pg_column_size(l.headers), 0) AS stored
    ) AS m
), whole AS MATERIALIZED (
    SELECT h.id, h.stored, h.bytes, row_number() OVER (ORDER BY h.place, h.ord, h.key, h.id) AS n
    FROM (
        SELECT *, count(*) OVER (PARTITION BY ord, key ORDER BY place ROWS UNBOUNDED PRECEDING) AS place_without_gap FROM held
    ) AS h
    WHERE h.key IS NULL OR h.place = h.place_without_gap
    ORDER BY n
    LIMIT $13::integer
), cut AS (
    SELECT id, n, bytes, sum(coalesce(bytes, stored)) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) AS least FROM whole
), sized AS (
    SELECT c.id, c.n, sum(coalesce(c.bytes, (
               SELECT coalesce(octet_length(j.payload::text), 0) + coalesce(octet_length(j.body), 0)
                      + coalesce(octet_length(j.headers::text), 0) FROM :jobs AS j WHERE j.id = c.id
           ))) OVER (ORDER BY c.n ROWS UNBOUNDED PRECEDING) AS total
    FROM cut AS c
    WHERE c.n = 1 OR c.least <= $14::bigint
), taken AS (
    UPDATE :jobs AS j
    SET status = 'running',
        attempts = least(j.attempts, 2147483646) + 1,
        leased_until = statement_timestamp() + $15::bigint * interval '1 microsecond',
        lease_token = $16::bigint
    WHERE j.id = ANY (CASE WHEN (SELECT sum(bytes) FROM whole HAVING count(bytes) = count(*)) <= $14::bigint
                           THEN ARRAY (SELECT id FROM whole)
                           ELSE ARRAY (SELECT id FROM sized WHERE n = 1 OR total <= $14::bigint) END)
    RETURNING j.id, j.kind, j.key, j.priority, j.payload::text, j.body, j.headers::text, j.attempts, j.max_attempts,
              j.alone, j.delivered, j.replay_of, j.run_at, j.created_at
)
SELECT t.*, (SELECT count(*) FROM whole), NULL::integer, NULL::integer, NULL::integer
FROM taken AS t
UNION ALL
SELECT NULL, NULL, l.key, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, (SELECT count(*) FROM whole),
       l.ord::integer, l.n, l.opened::integer
FROM looked AS l
