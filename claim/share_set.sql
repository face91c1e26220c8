-- Changes a kind's share. Every claim that begins after the commit goes by it: relays' and old workers' statements both
-- read the row. changed_at moves only with the share: it says since when the jobs are divided like this.
--
-- $1 kind   $2 share
UPDATE :relay_kinds SET share = $2::smallint, changed_at = statement_timestamp()
WHERE kind = $1::text AND share <> $2::smallint
