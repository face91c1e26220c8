-- A kind's share before it is changed; who else changes it waits.
--
-- $1 kind
SELECT share FROM :relay_kinds WHERE kind = $1::text FOR UPDATE
