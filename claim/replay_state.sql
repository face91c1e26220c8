-- How far a replay is; all but the first column are NULL when there is none of that name.
--
-- $1 name
SELECT statement_timestamp(), r.filters::text, r.position, r.copied, r.started_at, r.finished_at
FROM (VALUES (1)) AS always (one)
LEFT JOIN :relay_replays AS r ON r.name = $1::text
