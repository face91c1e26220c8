-- Claims and sweeps: one walk per (kind, priority). No column of it changes with a claim, so a claim touches no index.
CREATE INDEX {{.Concurrently}}{{.Index "pending"}} ON {{.Table}} (kind, priority DESC, run_at, id)
WHERE finished_at IS NULL;
