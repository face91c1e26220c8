-- Locks keys until the transaction ends, one after the other as they are given: everybody who sorts them waits for the
-- others instead of deadlocking with them.
SELECT u.place FROM unnest($1::text[]) WITH ORDINALITY AS u (key, place) CROSS JOIN LATERAL relay_key_lock(u.key)
