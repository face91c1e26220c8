-- Dead jobs: settling as done clears last_error, so next to no done job is in here.
CREATE INDEX {{.Concurrently}}{{.Index "dead"}} ON {{.Table}} (kind, id)
WHERE finished_at IS NOT NULL AND last_error IS NOT NULL;
