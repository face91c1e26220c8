-- Of the old design, for its workers' claims. Never built by relay: migrate retire knows by it what to drop.
CREATE INDEX {{.Concurrently}}{{.Index "ready"}} ON {{.Table}} (run_at)
WHERE status = 'ready'::text;
