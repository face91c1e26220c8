-- Writes a kind's row before it is first claimed; never over one that exists.
--
-- $1 kinds   $2 shares
INSERT INTO :relay_kinds (kind, share)
SELECT * FROM unnest($1::text[], $2::smallint[])
ON CONFLICT DO NOTHING
