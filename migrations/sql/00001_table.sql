-- The nine columns of the well-known single-table design, under their usual names. A table that exists already is
-- adopted instead: both then go the same way through the later steps, so a fresh table is an adopted one without rows.

-- +goose Up
{{- if not .Exists}}
CREATE TABLE {{.Table}} (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text        NOT NULL,
    payload      jsonb       NOT NULL,
    status       text        NOT NULL DEFAULT 'ready',
    run_at       timestamptz NOT NULL DEFAULT now(),
    attempts     integer     NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL DEFAULT 5,
    leased_until timestamptz,
    last_error   text
);
{{- end}}

-- +goose Down
{{- if not .Adopted}}
-- Locked before it is looked at: a job committed between the look and the DROP would be lost.
LOCK TABLE {{.Table}} IN ACCESS EXCLUSIVE MODE;
{{- if not .DropData}}
-- +goose StatementBegin
DO $relay$
BEGIN
    IF EXISTS (SELECT FROM {{.Table}}) THEN
        RAISE EXCEPTION 'the table holds rows' USING ERRCODE = 'RL001';
    END IF;
END
$relay$;
-- +goose StatementEnd
{{- end}}
DROP TABLE {{.Table}};
{{- end}}
