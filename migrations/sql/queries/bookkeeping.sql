-- A row for each step that was applied.
CREATE TABLE {{.In "relay_migrations"}} (
    version    bigint      PRIMARY KEY,
    name       text        NOT NULL,
    supports   bigint      NOT NULL, -- the oldest version of the schema whose relays work with this one
    detail     jsonb       NOT NULL DEFAULT '{}', -- what the step must know to be undone
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
