-- Forgets closed keys whose job is gone: deleted as it was done after all, or by hand. It looks at a page in the order of
-- (kind, key, job), and says where the page ended.
--
-- Of whatever kind: such a row holds nothing. A job and its closed key come in one transaction, so this snapshot has both.
--
-- above this: $1 kind, $2 key, $3 job   $4 most rows to look at
WITH page AS MATERIALIZED (
    SELECT c.kind, c.key, c.job
    FROM :relay_closed_keys AS c
    WHERE (c.kind, c.key, c.job) > ($1::text, $2::text, $3::bigint)
    ORDER BY c.kind, c.key, c.job
    LIMIT $4::integer
), gone AS (
    DELETE FROM :relay_closed_keys AS c
    USING page AS p
    WHERE c.kind = p.kind AND c.key = p.key AND c.job = p.job
      AND NOT EXISTS (SELECT FROM :jobs AS j WHERE j.id = p.job)
)
SELECT p.kind, p.key, p.job, (SELECT count(*) FROM page)::integer
FROM page AS p
ORDER BY p.kind DESC, p.key DESC, p.job DESC
LIMIT 1
