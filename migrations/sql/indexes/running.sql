-- Of the old design, for its workers' expired leases. Never built by relay: migrate retire knows by it what to drop.
CREATE INDEX {{.Concurrently}}{{.Index "running"}} ON {{.Table}} (leased_until)
WHERE status = 'running'::text;
