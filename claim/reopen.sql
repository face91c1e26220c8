-- Opens a closed key and leaves the dead jobs dead: what waits behind them goes on.
--
-- $1 kind   $2 key   $3 dead jobs
DELETE FROM :relay_closed_keys AS c
WHERE c.kind = $1::text AND c.key = $2::text AND c.job = ANY ($3::bigint[])
