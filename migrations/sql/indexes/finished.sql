-- Retention, replay, and who did what.
CREATE INDEX {{.Concurrently}}{{.Index "finished"}} ON {{.Table}} (kind, finished_at)
WHERE finished_at IS NOT NULL;
