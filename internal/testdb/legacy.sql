-- The table of the well-known single-table design, as its users have it.
CREATE TABLE jobs (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text        NOT NULL,
    payload      jsonb       NOT NULL,
    status       text        NOT NULL DEFAULT 'ready' CHECK (status IN ('ready', 'running', 'done', 'dead')),
    run_at       timestamptz NOT NULL DEFAULT now(),
    attempts     integer     NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL DEFAULT 5,
    leased_until timestamptz,
    last_error   text
);
CREATE INDEX jobs_ready_idx ON jobs (run_at) WHERE status = 'ready';
CREATE INDEX jobs_running_idx ON jobs (leased_until) WHERE status = 'running';
