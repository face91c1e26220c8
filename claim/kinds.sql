-- The shares of all kinds: a small table, read whole.
SELECT kind, share FROM :relay_kinds
