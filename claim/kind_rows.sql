-- The shares of all kinds, and since when they hold.
SELECT kind, share, changed_at FROM :relay_kinds
