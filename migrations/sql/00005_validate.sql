-- Validates the checks and sets the table's storage. Both take the lock that only vacuum and index builds mind.
-- Autovacuum goes by a number of rows, not by a share of a table whose size swings between nothing and millions. A row
-- of a job is written three times (enqueue, claim, settle): the fillfactor leaves room for all three on one page.
-- Storage settings that somebody has made already stay.

-- +goose Up
SET LOCAL lock_timeout = '10s';
ALTER TABLE {{.Table}}
{{- range $i, $c := .Checks}}{{if $i}},{{end}}
    VALIDATE CONSTRAINT {{$c.Name}}
{{- end}};
{{- range .NewStorage}}
ALTER TABLE {{$.Table}} SET ({{.Name}} = {{.Value}});
{{- end}}

-- +goose Down
SET LOCAL lock_timeout = '10s';
{{- range .OwnStorage}}
ALTER TABLE {{$.Table}} RESET ({{.Name}});
{{- end}}
