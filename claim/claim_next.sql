-- What a claim of one pair would take next, in its order: the rows among which one was refused. It reads nothing of a
-- job that could be refused, and locks nothing: the claim of these ids does.
--
-- $1 kind   $2 priority   $3 and $4 above this (run_at, id)   $5 up to this run_at   $6 most rows   $7 open destinations
-- as an array literal or ''   $8 only jobs without a key   $9 not these ids, NULL: any
SELECT j.id
FROM :jobs AS j
CROSS JOIN LATERAL (
    SELECT k.share FROM :relay_kinds AS k WHERE k.kind = $1::text AND k.share > 0 OFFSET 0
) AS s
WHERE j.finished_at IS NULL
  AND j.status <> ALL ('{running,done,dead}')
  AND j.kind = $1::text
  AND j.priority = $2::smallint
  AND (j.run_at, j.id) > ($3::timestamptz, $4::bigint)
  AND j.run_at <= least($5::timestamptz, statement_timestamp())
  AND (s.share >= 100 OR :relay_owns(j.kind, j.key, j.id))
  AND NOT ($8::boolean AND j.key IS NOT NULL)
  AND ($7::text = '' OR NOT coalesce(j.delivered, '{}') @> $7::text[])
  AND ($9::bigint[] IS NULL OR j.id <> ALL ($9::bigint[]))
ORDER BY j.run_at, j.id
LIMIT $6::integer
