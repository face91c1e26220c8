-- Per-key order: the oldest unfinished job of each key. Needed by routes with order: key only.
CREATE INDEX {{.Concurrently}}{{.Index "order"}} ON {{.Table}} (kind, key, id)
WHERE finished_at IS NULL AND key IS NOT NULL;
