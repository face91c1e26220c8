-- What lies in slices of the pending index: how many entries, where the last one is, what is due, whose lease is over.
--
-- Conditions on status stand outside the walk, so no other index fits. Kinds with a share of 0 are looked at too: their
-- leases may still run out.
--
-- Where a kind keeps the order of its keys only jobs without a key count as due, and their ids are returned: no floor
-- could lead a claim to them that wouldn't lead it past all the others. Keys of due jobs are returned where a walk from
-- key to key takes too long.
--
-- a slice each: $1 kind, $2 priority, $3 and $4 above this (run_at, id), $5 and $6 up to this one, $7 open destinations
-- as an array literal or '', $8 only jobs without a key, $9 keys are wanted
-- $10 most entries of a slice   $11 ids that don't count, NULL: none
SELECT p.ord::integer, s.n::integer, s.last_at, s.last_id, s.due::integer, s.due_at, s.due_last, s.expired, s.keyless, s.keys
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::text[],
            $8::boolean[], $9::boolean[])
       WITH ORDINALITY AS p (kind, priority, from_at, from_id, to_at, to_id, lacking, keyless, steep, ord)
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT share FROM :relay_kinds WHERE kind = p.kind), 0) AS share OFFSET 0
) AS k
CROSS JOIN LATERAL (
    SELECT count(*) AS n,
           max(e.run_at) AS last_at,
           (array_agg(e.id ORDER BY e.run_at DESC, e.id DESC))[1] AS last_id,
           count(*) FILTER (WHERE e.due) AS due,
           min(e.run_at) FILTER (WHERE e.due) AS due_at,
           max(e.run_at) FILTER (WHERE e.due) AS due_last,
           array_agg(e.id) FILTER (WHERE e.expired) AS expired,
           array_agg(e.id) FILTER (WHERE e.due AND p.keyless) AS keyless,
           array_agg(DISTINCT e.key) FILTER (WHERE p.steep AND e.ready AND e.key IS NOT NULL) AS keys
    FROM (
        SELECT j.id, j.run_at, j.key,
               j.status = 'ready' AND j.run_at <= statement_timestamp() AS ready,
               j.status = 'ready' AND j.run_at <= statement_timestamp() AND k.share > 0
                 AND NOT (p.keyless AND j.key IS NOT NULL)
                 AND (k.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
                 AND (p.lacking = '' OR NOT coalesce(j.delivered, '{}') @> p.lacking::text[])
                 AND ($11::bigint[] IS NULL OR j.id <> ALL ($11::bigint[])) AS due,
               j.status = 'running' AND j.lease_token IS NOT NULL
                 AND coalesce(j.leased_until, '-infinity') < statement_timestamp()
                 AND ($11::bigint[] IS NULL OR j.id <> ALL ($11::bigint[])) AS expired
        FROM :jobs AS j
        WHERE j.finished_at IS NULL
          AND j.kind = p.kind
          AND j.priority = p.priority
          AND (j.run_at, j.id) > (p.from_at, p.from_id)
          AND (j.run_at, j.id) <= (p.to_at, p.to_id)
        ORDER BY j.run_at, j.id
        LIMIT $10::integer
    ) AS e
) AS s
ORDER BY p.ord
